"""The whole operator beside an API server: watches, patches, finalizers, events and peers."""

from bicycle_runtime.base.errors import STORAGE_ACCESS_DENIED
from bicycle_runtime.recovery.errors import CHECKPOINT_MISSING
from bicycle_runtime.service.watching.states import State
from bicycle_sdk.errors import ConfigError
from tests.operator.kubernetes import in_world

NAME = "shop.clicks"
NO_ACCESS = STORAGE_ACCESS_DENIED(url="s3://a", action="write", path="b", reason="403")


@in_world
async def test_a_resource_lives_from_its_creation_to_its_deletion(world):
    async with world.operator():
        await world.create(parallelism=2)
        await world.until(lambda: world.reason() == "Applied", "the start")
        await world.change(parallelism=5)
        await world.until(lambda: world.found()["status"]["parallelism"] == 5, "the rescale")
        await world.change(suspend=True)
        await world.until(lambda: world.found()["status"]["phase"] == "PAUSED", "the pause")
        await world.change(suspend=False)
        await world.until(lambda: world.found()["status"]["phase"] == "RUNNING", "the resume")
        await world.delete()
        await world.until(lambda: world.found() is None, "the end")

    assert world.jobs.performed == ["submit", "rescale", "pause", "submit", "suspend"]
    assert world.jobs.runs[NAME].state is State.SUSPENDED
    assert {"InProgress", "Applied", "Running", "Paused"} <= world.events()


@in_world
async def test_a_rejected_spec_has_a_condition_and_an_event(world):
    world.jobs.refuses["submit"] = ConfigError(problem="no such topic", hint="create it")
    async with world.operator():
        await world.create()
        await world.until(lambda: world.reason() == "Rejected", "the rejection")
        await world.until(lambda: "Rejected" in world.events(), "the event")

    assert world.jobs.started == []


@in_world
async def test_of_two_operators_one_acts_and_the_other_takes_over(world):
    async with world.operator(is_alone=False, priority=1):
        async with world.operator(is_alone=False, priority=2):
            await world.create(parallelism=2)
            await world.until(lambda: world.reason() == "Applied", "the start")
        await world.change(parallelism=3)
        await world.until(lambda: world.found()["status"]["parallelism"] == 3, "the takeover")

    assert world.jobs.performed == ["submit", "rescale"]


@in_world
async def test_an_operator_that_is_started_again_continues_where_the_other_ended(world):
    world.jobs.held.add("submit")
    async with world.operator():
        await world.create(parallelism=2)
        await world.until(lambda: world.jobs.operations, "the request")
    world.jobs.held.clear()
    async with world.operator():
        await world.until(lambda: world.reason() == "Applied", "the start")

    assert len(world.jobs.operations) == 1
    assert world.jobs.started == [NAME]


@in_world
async def test_a_resource_that_is_deleted_while_no_operator_runs_is_released_by_the_next(world):
    async with world.operator():
        await world.create(deletionPolicy="Cancel")
        await world.until(lambda: world.reason() == "Applied", "the start")
    await world.delete()
    assert world.found() is not None
    async with world.operator():
        await world.until(lambda: world.found() is None, "the end")

    assert world.jobs.performed == ["submit", "cancel"]


@in_world
async def test_an_unavailable_service_only_delays_a_change(world):
    async with world.operator():
        await world.create(parallelism=2)
        await world.until(lambda: world.reason() == "Applied", "the start")
        world.jobs.is_down = True
        await world.until(lambda: world.reason() == "ServiceUnavailable", "the outage")
        await world.change(parallelism=4)
        world.jobs.is_down = False
        await world.until(lambda: world.found()["status"]["parallelism"] == 4, "the rescale")

    assert world.jobs.performed == ["submit", "rescale"]


@in_world
async def test_a_watch_that_is_too_old_is_begun_again(world):
    async with world.operator():
        await world.create(parallelism=2)
        await world.until(lambda: world.reason() == "Applied", "the start")
        await world.end_watches()
        await world.change(parallelism=4)
        await world.until(lambda: world.found()["status"]["parallelism"] == 4, "the rescale")

    assert world.jobs.performed == ["submit", "rescale"]


@in_world
async def test_several_resources_start_a_job_each(world):
    names = [f"job-{number}" for number in range(4)]
    async with world.operator():
        for name in names:
            await world.create(name)
        for name in names:
            await world.until(lambda name=name: world.reason(name=name) == "Applied", name)

    assert sorted(world.jobs.started) == sorted(f"shop.{name}" for name in names)


@in_world
async def test_a_savepoint_is_created_once_and_is_in_the_status_of_both_resources(world):
    async with world.operator():
        await world.create(parallelism=2)
        await world.until(lambda: world.reason() == "Applied", "the start")
        await world.save(name="before", to="file:/backup")
        await world.until(lambda: world.savepoint().get("phase") == "Completed", "the savepoint")
        await world.change(parallelism=3)
        await world.until(lambda: world.found()["status"]["parallelism"] == 3, "the rescale")

    assert world.jobs.performed == ["submit", "savepoint", "rescale"]
    assert world.jobs.operations[1].facts == {"to": "file:/backup"}
    assert world.savepoint() == {"phase": "Completed", "url": "file:/s/now", "epoch": 7}
    assert world.found()["status"]["lastSavepoint"] == {"url": "file:/s/now", "epoch": 7}


@in_world
async def test_a_savepoint_without_a_running_job_fails_with_the_reason(world):
    async with world.operator():
        await world.save(job="nothing")
        await world.until(lambda: world.savepoint().get("phase") == "Failed", "the failure")
        await world.until(lambda: "Failed" in world.events(), "the event")

    assert world.savepoint()["message"].startswith("BIC-")


@in_world
async def test_a_savepoint_reaches_only_jobs_of_its_namespace(world):
    victim = {"plugin": "x", "name": "other.victim", "options": {}}
    world.jobs.request("/jobs", "", victim, "other")
    world.jobs.look(1)
    names = {"path": "x/../other.victim/cancel#", "encoded": "x%2F..%2Fother.victim%2Fcancel%23",
             "query": "victim?", "empty": ""}  # fmt: skip
    async with world.operator():
        for name, job in names.items():
            await world.save(name=name, job=job, to="s3://mine")
        for name in names:
            await world.until(lambda name=name: world.savepoint(name).get("phase"), name)
            assert world.savepoint(name)["phase"] == "Failed"
            assert "is not the name of a BicycleJob" in world.savepoint(name)["message"]

    assert world.jobs.performed == ["submit"]
    assert world.jobs.runs["other.victim"].state is State.RUNNING


@in_world
async def test_a_deletion_whose_savepoint_fails_has_a_condition_and_an_event(world):
    async with world.operator():
        await world.create()
        await world.until(lambda: world.reason() == "Applied", "the start")
        world.jobs.unsaved = NO_ACCESS
        await world.delete()
        await world.until(lambda: world.reason() == "Retrying", "the failure")
        await world.until(lambda: "Retrying" in world.events(), "the event")
        assert world.found() is not None
        await world.change(deletionPolicy="Cancel")
        await world.until(lambda: world.found() is None, "the end")

    assert world.jobs.performed == ["submit"]


@in_world
async def test_a_growing_lag_scales_the_job_and_is_recorded(world):
    policy = {"minParallelism": 1, "maxParallelism": 3, "scaleUpLag": 1_000, "scaleUpSeconds": 0.1,
              "scaleDownLag": 100, "scaleDownSeconds": 1_000}  # fmt: skip
    async with world.operator():
        await world.create(parallelism=1, autoscaling=policy)
        await world.until(lambda: world.reason() == "Applied", "the start")
        world.jobs.runs[NAME].lag = 5_000
        await world.until(lambda: world.found()["status"]["parallelism"] == 3, "the rescale")

    assert world.jobs.performed == ["submit", "rescale", "rescale"]
    decisions = world.found()["status"]["autoscaling"]["decisions"]
    assert [(each["from"], each["to"]) for each in decisions] == [(2, 3), (1, 2)]
    assert "5000 records" in decisions[0]["reason"]
    assert "Autoscaled" in world.events()


@in_world
async def test_an_upgrade_right_after_the_start_is_repeated_with_a_condition_and_events(world):
    for version in ("1.0", "2.0"):
        world.jobs.upload("clicks", version)
    async with world.operator():
        await world.create(version="1.0")
        await world.until(lambda: world.reason() == "Applied", "the start")
        world.jobs.fails["upgrade"] = CHECKPOINT_MISSING(url="file:/c", found="", hint="wait")
        await world.change(version="2.0")
        await world.until(lambda: world.reason() == "Retrying", "the failure")
        await world.until(lambda: world.reason() == "Applied", "the upgrade")
        await world.until(lambda: world.found()["status"]["version"] == "2.0", "the version")

    assert "Retrying" in world.events()
    assert world.jobs.performed == ["submit", "upgrade"]
    assert [each.state for each in world.jobs.operations] == ["done", "failed", "done"]


@in_world
async def test_a_spec_that_changes_while_a_step_is_made_is_carried_out_by_the_next(world):
    world.jobs.upload("clicks", "1.0")
    world.jobs.upload("clicks", "2.0")
    async with world.operator():
        await world.create(version="1.0", parallelism=2)
        await world.until(lambda: world.reason() == "Applied", "the start")

        async def change():
            meta = (await world.change(version="2.0"))["metadata"]
            await world.until(
                lambda: world.noticed["clicks"] == meta["generation"], "the operator's notice"
            )

        world.jobs.at_plugins = change
        await world.change(deletionPolicy="Cancel")
        await world.until(lambda: world.found()["status"].get("version") == "2.0", "the upgrade")

    assert world.jobs.performed == ["submit", "upgrade"]
