"""The operator against a real API server, with the rights of the chart, and many resources."""

import asyncio

import pytest

from tests.kube.api_server import JOBS, real_world
from tests.operator.services import JobsWithoutProcesses, serving

pytestmark = [pytest.mark.extended, pytest.mark.timeout(400)]

RESOURCES, PATIENCE_S = 1_000, 300
POLICY = {"minParallelism": 1, "maxParallelism": 3, "scaleUpLag": 1_000, "scaleUpSeconds": 1,
          "scaleDownLag": 100, "scaleDownSeconds": 1_000}  # fmt: skip


def in_real_world(server, scenario):
    """Run a scenario with an operator and a service of jobs without processes."""

    async def run():
        jobs = JobsWithoutProcesses()
        async with (
            serving(jobs) as url, real_world(server, url, jobs) as world, world.operator()
        ):  # fmt: skip
            await scenario(world)
        return jobs

    return asyncio.run(run())


def test_a_resource_lives_from_its_creation_to_its_deletion(server):
    async def scenario(world):
        await world.create(parallelism=2)
        await world.until(lambda: world.reason() == "Applied", "the start")
        for width in (5, 1):
            await world.scale(width)
            await world.until(
                lambda width=width: world.found()["status"]["parallelism"] == width, "scale"
            )
        code, scale = server.ask("GET", f"{JOBS}/clicks/scale")
        assert (code, scale["status"]["replicas"]) == (200, 1)
        assert scale["status"]["selector"] == "bicycle.dev/job=clicks"
        await world.save("before")
        await world.until(lambda: world.savepoint().get("phase") == "Completed", "the savepoint")
        await world.change(suspend=True)
        await world.until(lambda: world.found()["status"]["phase"] == "PAUSED", "the pause")
        await world.change(suspend=False)
        await world.until(lambda: world.found()["status"]["phase"] == "RUNNING", "the resume")
        await world.delete()
        await world.until(lambda: world.found() is None, "the end")
        assert {"Applied", "Running", "Paused", "Completed"} <= world.events()

    jobs = in_real_world(server, scenario)

    assert jobs.performed == [
        "submit", "rescale", "rescale", "savepoint", "pause", "submit", "suspend",
    ]  # fmt: skip


def test_a_growing_lag_scales_the_job(server):
    async def scenario(world):
        await world.create(parallelism=1, autoscaling=POLICY)
        await world.until(lambda: world.reason() == "Applied", "the start")
        world.jobs.runs["shop.clicks"].lag = 5_000
        await world.until(lambda: world.found()["status"]["parallelism"] == 3, "the rescale")
        decisions = world.found()["status"]["autoscaling"]["decisions"]
        assert [(each["from"], each["to"]) for each in decisions] == [(2, 3), (1, 2)]

    assert in_real_world(server, scenario).performed == ["submit", "rescale", "rescale"]


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"pipeline": {"file": "a.toml", "text": ""}}, "set either plugin or pipeline"),
        ({"parallelism": 0}, "spec.parallelism"),
        ({"options": {"restart_attempts": -1}}, "spec.options.restart_attempts"),
        ({"deletionPolicy": "Keep"}, "spec.deletionPolicy"),
        ({"upgrade": {"strategy": "slowly"}}, "spec.upgrade.strategy"),
        ({"parallelism": 1, "autoscaling": {**POLICY, "scaleDownLag": 2_000}}, "must be below"),
    ],
)
def test_a_wrong_spec_is_rejected_with_the_field(server, spec, problem):
    body = {
        "apiVersion": "bicycle.dev/v1alpha1", "kind": "BicycleJob",
        "metadata": {"name": "clicks"}, "spec": {"plugin": "clicks", **spec},
    }  # fmt: skip
    code, answer = server.ask("POST", JOBS, body)

    assert code == 422
    assert problem in answer["message"]


def test_a_thousand_resources_start_a_job_each(server):
    names = [f"job-{number}" for number in range(RESOURCES)]

    async def scenario(world):
        for name in names:
            await world.create(name)
        await world.until(
            lambda: len(world.jobs.started) == RESOURCES, "the starts", patience_s=PATIENCE_S
        )

    jobs = in_real_world(server, scenario)

    assert sorted(jobs.started) == sorted(f"shop.{name}" for name in names)
