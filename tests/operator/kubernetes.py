"""An API server in memory, operators beside it, and a service, in one event loop.

kmock serves the API. What it leaves out and the operator needs is added here: uids, generations and
versions of resources.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from contextlib import asynccontextmanager
from time import monotonic

import aiohttp
import kmock
import kopf

from bicycle_operator.handlers import register
from bicycle_operator.main import PEERING, settings_of_operator
from bicycle_operator.service import Service
from tests.operator.services import JobsWithoutProcesses, serving
from tests.waiting import PATIENCE_S

JOBS = kmock.resource("bicycle.dev", "v1alpha1", "bicyclejobs")
SAVEPOINTS = kmock.resource("bicycle.dev", "v1alpha1", "bicyclesavepoints")
PEERINGS = kmock.resource("kopf.dev", "v1", "clusterkopfpeerings")
EVENTS = kmock.resource("", "v1", "events")
PERIOD_S = 0.2


class ApiServer(kmock.KubernetesEmulator):
    """An API server whose objects have uid, generation and resource version."""

    def __attrs_post_init__(self):
        super().__attrs_post_init__()
        self.numbers = itertools.count(1)

    async def _handle(self, request):
        data = request.data
        if request.resource is not None and isinstance(data, dict):
            meta = data.setdefault("metadata", {})
            if request.method is not None and request.method.value == "POST":
                number = next(self.numbers)
                meta.update(uid=f"uid-{number}", generation=1, resourceVersion=str(number))
                meta.setdefault("name", f"made-{number}")
            elif request.method.value == "PATCH":
                meta["resourceVersion"] = str(next(self.numbers))
                if "spec" in data:
                    known = self.objects[request.resource, request.namespace, request.name]
                    meta["generation"] = known["metadata"]["generation"] + 1
        return await super()._handle(request)


class World:
    """One cluster with a service."""

    def __init__(self, api, url, jobs, service_url):
        self.api, self.url, self.jobs, self.service_url = api, url, jobs, service_url
        self.noticed = {}  # The generations that operators know, by the name of the resource.

    @property
    def connection(self):
        return kopf.ConnectionInfo(server=self.url)

    def session(self):
        """Return a session with the rights of the operator."""
        return aiohttp.ClientSession()

    @asynccontextmanager
    async def operator(self, *, is_alone=True, priority=None, url=None):
        """Run an operator in a thread: kopf waits for all tasks of its loop when it ends.

        It reaches the API server under another ``url`` if given.
        """
        stop, ready = threading.Event(), threading.Event()

        async def run():
            registry = kopf.OperatorRegistry()

            @kopf.on.login(registry=registry)
            def login(**_):
                return kopf.AiohttpSession(server=url or self.url, aiohttp_session=api)

            @kopf.on.event("bicycle.dev", "v1alpha1", "bicyclejobs", registry=registry)
            def note(name, meta, **_):
                self.noticed[name] = meta["generation"]

            settings = settings_of_operator()
            settings.peering.standalone, settings.peering.mandatory = is_alone, not is_alone
            if priority is not None:
                settings.peering.priority = priority
            # A session that kopf makes by itself may stay open when its operator ends.
            async with self.session() as api, aiohttp.ClientSession() as session:
                service = Service(url=self.service_url, session=session, age_s=0)
                register(registry, service, settings, period_s=PERIOD_S)
                await kopf.operator(
                    registry=registry, settings=settings, clusterwide=True, stop_flag=stop,
                    ready_flag=ready,
                )  # fmt: skip

        running = asyncio.create_task(asyncio.to_thread(asyncio.run, run()))
        try:
            await self.until(ready.is_set, "the operator")
            yield
        finally:
            stop.set()
            await running

    async def create(self, name="clicks", **spec):
        body = {
            "apiVersion": "bicycle.dev/v1alpha1", "kind": "BicycleJob",
            "metadata": {"name": name, "namespace": "shop"},
            "spec": {"plugin": "clicks", **spec},
        }  # fmt: skip
        return await self._send("POST", "", body)

    async def save(self, name="before", job="clicks", **spec):
        body = {
            "apiVersion": "bicycle.dev/v1alpha1", "kind": "BicycleSavepoint",
            "metadata": {"name": name, "namespace": "shop"}, "spec": {"job": job, **spec},
        }  # fmt: skip
        return await self._send("POST", "", body, plural="bicyclesavepoints")

    def savepoint(self, name="before"):
        """Return the status of a BicycleSavepoint."""
        return self.api.objects[SAVEPOINTS, "shop", name].raw.get("status", {})

    async def change(self, name="clicks", **spec):
        return await self._send("PATCH", f"/{name}", {"spec": spec})

    async def delete(self, name="clicks"):
        return await self._send("DELETE", f"/{name}", None)

    async def _send(self, method, rest, body, *, plural="bicyclejobs"):
        path = f"/apis/bicycle.dev/v1alpha1/namespaces/shop/{plural}{rest}"
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        async with (
            aiohttp.ClientSession(self.url) as session,
            session.request(method, path, json=body, headers={"Content-Type": kind}) as answer,
        ):
            assert answer.ok, await answer.text()
            return await answer.json()

    async def end_watches(self):
        """End all watches with 410, as an API server does that has forgotten their position."""
        gone = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410}
        gone["metadata"] = {"namespace": "shop", "name": "clicks"}  # kmock selects watches by it.
        await self.api._buses[JOBS].put({"type": "ERROR", "object": gone})

    def found(self, name="clicks"):
        """Return a resource, or None."""
        key = (JOBS, "shop", name)
        if key not in self.api.objects or self.api.objects[key].deleted:
            return None
        return self.api.objects[key].raw

    def reason(self, kind="Synced", name="clicks"):
        conditions = (self.found(name) or {}).get("status", {}).get("conditions", [])
        return next((each["reason"] for each in conditions if each["type"] == kind), None)

    def events(self):
        """Return the reasons of all events."""
        return {each.raw["reason"] for key, each in self.api.objects.items() if key[0] == EVENTS}

    async def until(self, condition, what, *, patience_s=PATIENCE_S):
        end_s = monotonic() + patience_s
        while not condition():
            assert monotonic() < end_s, f"{what} did not come: {self.found()}"
            await asyncio.sleep(0.01)


@asynccontextmanager
async def world_of(service_url, jobs=None):
    """Yield a cluster beside a service."""
    async with ApiServer() as api, kmock.Server(api) as server:
        for resource, kind in ((JOBS, "BicycleJob"), (SAVEPOINTS, "BicycleSavepoint")):
            api.resources[resource] = kmock.ResourceInfo(
                kind=kind, namespaced=True, subresources={"status", "scale"},
                verbs={"get", "list", "watch", "patch", "create", "delete"},
            )  # fmt: skip
        for resource, kind in (
            (kmock.resource("", "v1", "namespaces"), "Namespace"),
            (kmock.resource("apiextensions.k8s.io", "v1", "customresourcedefinitions"),
             "CustomResourceDefinition"),
            (PEERINGS, "ClusterKopfPeering"),
        ):  # fmt: skip
            api.resources[resource] = kmock.ResourceInfo(
                kind=kind, namespaced=False, verbs={"get", "list", "watch", "patch"}
            )
        api.objects[PEERINGS, None, PEERING] = {
            "metadata": {"name": PEERING, "resourceVersion": "0"}, "status": {},
        }  # fmt: skip
        api.resources[EVENTS] = kmock.ResourceInfo(kind="Event", namespaced=True, verbs={"create"})
        yield World(api, str(server.url), jobs, service_url)


def in_world(scenario):
    """Run a test in a loop, with a cluster and a service of jobs without processes."""

    async def run():
        jobs = JobsWithoutProcesses()
        async with serving(jobs) as url, world_of(url, jobs) as world:
            await scenario(world)

    def test():
        asyncio.run(run())

    test.__name__ = scenario.__name__
    return test
