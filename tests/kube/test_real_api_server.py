"""The operator against a real API server: schemas, scale, finalizers, kills, and many resources.

These tests run in ``nox -s kube``, which builds the API server. Without it, there is nothing to run
them against.
"""

import asyncio
import random
import runpy
import shutil
import signal
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.kube.api_server import RealWorld, started
from tests.operator.services import JobsWithoutProcesses, serving
from tests.operator.test_command import start

pytestmark = [pytest.mark.extended, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
BINARY = runpy.run_path(str(ROOT / "tools/kube_apiserver.py"))["BINARY"]
FOUND = [str(BINARY)] if BINARY.exists() and shutil.which("etcd") else []
needs_api_server = pytest.mark.parametrize("binary", FOUND)
KILLS, RESOURCES, PATIENCE_S = 100, 1_000, 300


@asynccontextmanager
async def real_world(binary, folder):
    jobs = JobsWithoutProcesses()
    async with serving(jobs) as url:
        with started(binary, folder) as server:
            yield RealWorld(server, server.url, jobs, url)


@needs_api_server
def test_a_resource_lives_from_its_creation_to_its_deletion(binary, tmp_path):
    async def scenario():
        async with real_world(binary, tmp_path) as world, world.operator():
            await world.create(parallelism=2)
            await world.until(lambda: world.reason() == "Applied", "the start")
            for width in (5, 1):
                await world.scale(width)
                await world.until(
                    lambda width=width: world.found()["status"]["parallelism"] == width, "scale"
                )
            await world.change(suspend=True)
            await world.until(lambda: world.found()["status"]["phase"] == "PAUSED", "the pause")
            await world.change(suspend=False)
            await world.until(lambda: world.found()["status"]["phase"] == "RUNNING", "the resume")
            await world.delete()
            await world.until(lambda: world.found() is None, "the end")
            return world.jobs.performed

    performed = asyncio.run(scenario())

    assert performed == ["submit", "rescale", "rescale", "pause", "submit", "suspend"]


@needs_api_server
@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"pipeline": {"file": "a.toml", "text": ""}}, "set either plugin or pipeline"),
        ({"parallelism": 0}, "spec.parallelism"),
        ({"options": {"restart_attempts": -1}}, "spec.options.restart_attempts"),
        ({"deletionPolicy": "Keep"}, "spec.deletionPolicy"),
        ({"upgrade": {"strategy": "slowly"}}, "spec.upgrade.strategy"),
    ],
)
def test_a_wrong_spec_is_rejected_with_the_field(binary, spec, problem, tmp_path):
    with started(binary, tmp_path) as server:
        body = {
            "apiVersion": "bicycle.dev/v1alpha1", "kind": "BicycleJob",
            "metadata": {"name": "clicks"}, "spec": {"plugin": "clicks", **spec},
        }  # fmt: skip
        path = "/apis/bicycle.dev/v1alpha1/namespaces/shop/bicyclejobs"
        code, answer = server.ask("POST", path, body)

    assert code == 422
    assert problem in answer["message"]


@needs_api_server
def test_operators_that_are_killed_at_random_moments_start_a_job_once(binary, tmp_path):
    moments = random.Random(46)

    async def scenario():
        async with real_world(binary, tmp_path) as world:
            await world.create(parallelism=1)
            for number in range(KILLS):
                operator = start(world, tmp_path)
                await world.change(parallelism=number % 5 + 1)
                await asyncio.sleep(moments.uniform(0.2, 3))
                operator.kill()
                await asyncio.to_thread(operator.wait)
                world.forget_operators()
            last = start(world, tmp_path)
            try:
                await world.change(parallelism=7)
                await world.until(
                    lambda: world.found().get("status", {}).get("parallelism") == 7, "the last",
                    patience_s=PATIENCE_S,
                )  # fmt: skip
            finally:
                last.send_signal(signal.SIGTERM)
                await asyncio.to_thread(last.wait)
            return world.jobs.started

    assert asyncio.run(scenario()) == ["shop.clicks"]


@needs_api_server
def test_a_thousand_resources_start_a_job_each(binary, tmp_path):
    names = [f"job-{number}" for number in range(RESOURCES)]

    async def scenario():
        async with real_world(binary, tmp_path) as world, world.operator():
            for name in names:
                await world.create(name)
            await world.until(
                lambda: len(world.jobs.started) == RESOURCES, "the starts", patience_s=PATIENCE_S
            )
            return world.jobs.started

    assert sorted(asyncio.run(scenario())) == sorted(f"shop.{name}" for name in names)
