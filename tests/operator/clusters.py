"""A resource without an API server, and operators of it that may be killed."""

import asyncio
import copy
from contextlib import asynccontextmanager

import aiohttp

from bicycle_operator.reconciling import RETRY_S, reconcile
from bicycle_operator.service import Service
from tests.operator.services import JobsWithoutProcesses, serving

SPEC = {"plugin": "clicks", "params": {"topic": "a"}, "parallelism": 2}
STEPS_MAX = 40


class Killed(BaseException):
    """The operator ends here."""


class MortalService(Service):
    """A client that ends its operator before or after one request."""

    dies_at = (-1, "before")
    count = 0

    async def send(self, method, path, **more):
        self.count += 1
        number, when = self.dies_at
        if (self.count, when) == (number, "before"):
            raise Killed
        answer = await super().send(method, path, **more)
        if (self.count, when) == (number, "after"):
            raise Killed
        return answer


class Cluster:
    """One resource, whose status only changes by patches, and the operators of it."""

    def __init__(self, jobs, service):
        self.jobs, self.service = jobs, service
        meta = {"namespace": "shop", "name": "clicks", "uid": "u-1", "generation": 1}
        self.resource = {"metadata": meta, "spec": copy.deepcopy(SPEC), "status": {}}
        self.now_s = 1_000.0
        self.loses_patch = -1
        self.patches = 0

    @property
    def status(self):
        return self.resource["status"]

    @property
    def synced(self):
        return next(each for each in self.status["conditions"] if each["type"] == "Synced")

    def change(self, **spec):
        self.resource["spec"] = {**self.resource["spec"], **spec}
        self.resource["spec"] = {k: v for k, v in self.resource["spec"].items() if v is not None}
        self.resource["metadata"]["generation"] += 1

    async def step(self):
        try:
            new = await reconcile(copy.deepcopy(self.resource), self.service, now_s=self.now_s)
        except Killed:
            return
        self.patches += 1
        if self.patches != self.loses_patch:
            self.patch(new)

    def patch(self, changes):
        apply(self.status, changes)

    async def settle(self):
        """Make steps until the resource is as it is specified, or rejected."""
        for _ in range(STEPS_MAX):
            await self.step()
            generation = self.resource["metadata"]["generation"]
            is_observed = self.status.get("observedGeneration") == generation
            if is_observed and self.status.get("seen") is not None:
                return
        raise AssertionError(self.status)

    def mark_deleted(self):
        self.resource["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        self.resource["metadata"]["generation"] += 1

    async def delete(self):
        """Make steps until the resource may be removed; each failure waits for its delay."""
        self.mark_deleted()
        for _ in range(STEPS_MAX):
            await self.step()
            if self.is_over:
                return
            if self.status.get("seen") is not None:
                self.now_s += RETRY_S
        raise AssertionError(self.status)

    @property
    def is_over(self):
        generation = self.resource["metadata"]["generation"]
        is_observed = self.status.get("observedGeneration") == generation
        return is_observed and self.synced["status"] == "True"


def apply(target, patch):
    """Apply a JSON merge patch."""
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        elif isinstance(value, dict):
            apply(target.setdefault(name, {}), value)
        else:
            target[name] = value


@asynccontextmanager
async def cluster():
    jobs = JobsWithoutProcesses()
    jobs.upload("clicks", "1.0")
    jobs.upload("clicks", "2.0")
    async with serving(jobs) as url, aiohttp.ClientSession() as session:
        yield Cluster(jobs, MortalService(url=url, session=session, age_s=0))


def on_cluster(scenario):
    """Run a test in a loop, with a cluster."""

    def test(*given):
        async def run():
            async with cluster() as found:
                await scenario(found, *given)

        asyncio.run(run())

    test.__name__ = scenario.__name__
    return test
