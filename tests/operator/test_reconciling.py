"""From a resource to operations of a service: each change, and each end."""

import pytest

from bicycle_operator.reconciling import FIRST_RETRY_S, RETRY_S
from bicycle_operator.service import Unavailable
from bicycle_runtime.base.errors import STORAGE_ACCESS_DENIED
from bicycle_runtime.jobs.errors import UPGRADE_UNDERWAY
from bicycle_runtime.recovery.errors import CHECKPOINT_MISSING
from bicycle_runtime.service.errors import QUOTA_EXCEEDED
from bicycle_runtime.service.watching.states import State
from bicycle_sdk.errors import ConfigError
from tests.operator.clusters import on_cluster
from tests.operator.services import LIMIT

NAME = "shop.clicks"
NO_ACCESS = STORAGE_ACCESS_DENIED(url="s3://a", action="write", path="b", reason="403")
NO_EPOCH = CHECKPOINT_MISSING(url="file:/c", found="", hint="wait until the job seals an epoch")


@on_cluster
async def test_a_new_resource_starts_its_job_once(cluster):
    await cluster.settle()
    await cluster.settle()

    assert cluster.jobs.started == [NAME]
    assert cluster.jobs.runs[NAME].body["options"] == {"parallelism": 2}
    assert cluster.jobs.runs[NAME].body["params"] == {"topic": "a"}
    assert cluster.status["phase"] == "RUNNING"
    assert cluster.synced["reason"] == "Applied"
    assert cluster.status["selector"] == "bicycle.dev/job=clicks"


@on_cluster
async def test_a_scale_is_a_rescale_without_a_restart(cluster):
    await cluster.settle()
    for width in (5, 1, 5):
        cluster.change(parallelism=width)
        await cluster.settle()
        assert cluster.jobs.runs[NAME].parallelism == cluster.status["parallelism"] == width

    assert cluster.jobs.performed == ["submit", "rescale", "rescale", "rescale"]


@on_cluster
async def test_a_job_that_was_rescaled_often_is_still_the_job_of_its_resource(cluster):
    cluster.change(version="1.0", parallelism=1)
    cluster.jobs.upload("clicks", "1.0")
    await cluster.settle()
    cluster.change(version="2.0")
    cluster.jobs.upload("clicks", "2.0")
    await cluster.settle()
    for number in range(LIMIT + 1):
        cluster.change(parallelism=2 + number % 2)
        await cluster.settle()

    assert cluster.synced["reason"] == "Applied"
    assert cluster.jobs.performed == ["submit", "upgrade", *["rescale"] * (LIMIT + 1)]


@on_cluster
async def test_many_failed_rescales_do_not_hide_the_last_one_that_was_done(cluster):
    await cluster.settle()
    cluster.change(parallelism=3)
    await cluster.settle()
    for number in range(LIMIT + 1):
        cluster.change(parallelism=5 + number % 2)
        cluster.jobs.fails["rescale"] = ConfigError(problem="no slots", hint="free one")
        await cluster.settle()
        assert cluster.status["parallelism"] == 3
    cluster.change(parallelism=3)
    await cluster.settle()

    assert cluster.synced["reason"] == "Applied"
    assert cluster.jobs.runs[NAME].parallelism == 3


@on_cluster
async def test_changed_parameters_stop_the_job_and_start_it_again(cluster):
    await cluster.settle()
    cluster.change(params={"topic": "b"})
    await cluster.settle()

    assert cluster.jobs.performed == ["submit", "stop", "submit"]
    assert cluster.jobs.runs[NAME].body["params"] == {"topic": "b"}


@on_cluster
async def test_a_suspended_job_is_paused_and_resumes(cluster):
    await cluster.settle()
    for _ in range(2):
        cluster.change(suspend=True)
        await cluster.settle()
        assert cluster.status["phase"] == "PAUSED"
        cluster.change(suspend=False)
        await cluster.settle()
        assert cluster.status["phase"] == "RUNNING"

    assert cluster.jobs.performed == ["submit", "pause", "submit", "pause", "submit"]


@on_cluster
async def test_a_job_that_is_suspended_from_the_beginning_is_not_started(cluster):
    cluster.change(suspend=True)
    await cluster.settle()
    assert cluster.jobs.started == []

    cluster.change(suspend=False)
    await cluster.settle()
    assert cluster.jobs.started == [NAME]


@on_cluster
async def test_the_savepoint_of_a_suspension_is_in_the_status(cluster):
    cluster.change(savepointPolicy="OnStop")
    await cluster.settle()
    cluster.change(suspend=True)
    await cluster.settle()

    assert cluster.status["phase"] == "SUSPENDED"
    assert cluster.status["lastSavepoint"] == {"url": "file:/s/1", "epoch": 7}


@on_cluster
async def test_another_version_is_an_upgrade_with_its_options(cluster):
    cluster.change(version="1.0", upgrade={"strategy": "blue-green"})
    await cluster.settle()
    cluster.change(version="2.0")
    await cluster.settle()
    await cluster.step()

    assert cluster.jobs.performed == ["submit", "upgrade"]
    assert cluster.jobs.operations[-1].facts["strategy"] == "blue-green"
    assert cluster.jobs.runs[NAME].body["digest"] == "a-clicks-2.0"
    assert cluster.status["version"] == "2.0"
    assert cluster.status["lastSavepoint"] == {"url": "file:/s/upgrade", "epoch": 7}


@on_cluster
async def test_an_upgrade_that_is_rolled_back_is_reported_and_not_repeated_by_a_scale(cluster):
    cluster.change(version="1.0")
    await cluster.settle()
    cluster.jobs.fails["upgrade"] = ConfigError(problem="rolled back", hint="correct it")
    cluster.change(version="2.0")
    await cluster.settle()
    before = cluster.synced
    cluster.change(parallelism=4)
    await cluster.settle()

    assert before["reason"] == "OperationFailed"
    assert "rolled back" in before["message"]
    assert (cluster.status["version"], cluster.status["parallelism"]) == ("1.0", 4)
    assert cluster.synced["reason"] == "OperationFailed"
    assert cluster.jobs.performed == ["submit", "rescale"]

    cluster.jobs.upload("clicks", "2.0", build="b")
    cluster.now_s += RETRY_S
    await cluster.step()
    await cluster.settle()
    assert cluster.synced["reason"] == "Applied"
    assert cluster.jobs.runs[NAME].body["digest"] == "b-clicks-2.0"

    cluster.change(version="1.0")
    await cluster.settle()
    assert cluster.synced["reason"] == "Applied"


@on_cluster
async def test_an_upgrade_that_fails_for_now_is_repeated_with_growing_delays(cluster):
    cluster.change(version="1.0")
    await cluster.settle()
    cluster.change(version="2.0")
    for delay_s in (5, 10, 20, 40, 60, 60):
        cluster.jobs.fails["upgrade"] = NO_EPOCH
        await cluster.settle()
        assert (cluster.synced["status"], cluster.synced["reason"]) == ("False", "Retrying")
        assert "upgrade: BIC-1520: " in cluster.synced["message"]
        assert f"repeats it in {delay_s} s" in cluster.synced["message"]
        asked = len(cluster.jobs.operations)
        cluster.now_s += delay_s - 1
        await cluster.step()
        assert len(cluster.jobs.operations) == asked
        cluster.now_s += 1
        await cluster.step()
    await cluster.settle()

    assert cluster.synced["reason"] == "Applied"
    assert cluster.jobs.performed == ["submit", "upgrade"]
    keys = [each.key for each in cluster.jobs.operations]
    assert len(keys) == len(set(keys)) == 8


@on_cluster
async def test_an_upgrade_that_is_refused_for_now_is_repeated_and_a_wrong_one_is_not(cluster):
    cluster.change(version="1.0")
    await cluster.settle()
    cluster.jobs.refuses["upgrade"] = UPGRADE_UNDERWAY(job=NAME, step="watch")
    cluster.change(version="2.0")
    await cluster.settle()
    assert cluster.synced["reason"] == "Retrying"

    cluster.jobs.refuses["upgrade"] = ConfigError(problem="no such option", hint="omit it")
    cluster.now_s += FIRST_RETRY_S
    await cluster.step()
    assert cluster.synced["reason"] == "Rejected"
    cluster.now_s += 10 * RETRY_S
    await cluster.step()
    assert cluster.jobs.performed == ["submit"]


@on_cluster
async def test_a_rescale_that_fails_again_and_again_waits_a_minute_each_time(cluster):
    await cluster.settle()
    cluster.change(parallelism=4)
    for count in (2, 3, 4):
        cluster.jobs.fails["rescale"] = ConfigError(problem="no slots", hint="add slots")
        for _ in range(4):
            await cluster.step()
        assert cluster.synced["reason"] == "OperationFailed"
        assert len(cluster.jobs.operations) == count
        cluster.now_s += RETRY_S
    await cluster.step()
    await cluster.settle()

    assert cluster.jobs.performed == ["submit", "rescale"]


@on_cluster
async def test_a_missing_wheel_is_waited_for(cluster):
    cluster.change(version="3.0")
    await cluster.settle()
    assert cluster.synced["reason"] == "PluginMissing"

    cluster.jobs.upload("clicks", "3.0")
    cluster.now_s += RETRY_S
    for _ in range(3):
        await cluster.step()
    assert cluster.jobs.started == [NAME]


@on_cluster
async def test_the_newest_wheel_of_a_version_is_used(cluster):
    cluster.jobs.upload("clicks", "1.0", build="b")
    cluster.change(version="1.0")
    await cluster.settle()

    assert cluster.jobs.runs[NAME].body["digest"] == "b-clicks-1.0"


@on_cluster
async def test_a_rejected_spec_has_its_reason_and_is_tried_again_when_it_changes(cluster):
    cluster.jobs.refuses["submit"] = ConfigError(problem="no such topic", hint="create it")
    await cluster.settle()
    asked = cluster.service.count
    await cluster.step()

    assert (cluster.synced["status"], cluster.synced["reason"]) == ("False", "Rejected")
    assert "no such topic; " in cluster.synced["message"]
    assert cluster.service.count == asked + 1  # Only the list of jobs.

    cluster.change(params={"topic": "b"})
    await cluster.settle()
    assert cluster.jobs.started == [NAME]


@on_cluster
async def test_a_rejection_whose_cause_is_elsewhere_is_tried_again_after_a_minute(cluster):
    cluster.jobs.refuses["submit"] = ConfigError(problem="no plugin", hint="install it")
    await cluster.settle()
    cluster.now_s += RETRY_S
    for _ in range(3):
        await cluster.step()

    assert cluster.jobs.started == [NAME]


@on_cluster
async def test_a_job_without_processes_is_started_again_and_a_failed_one_is_not(cluster):
    await cluster.settle()
    cluster.jobs.lose(NAME)
    for _ in range(3):
        await cluster.step()
    assert cluster.jobs.started == [NAME, NAME]
    assert cluster.jobs.runs[NAME].state is State.RUNNING

    cluster.jobs.end(NAME, State.FAILED)
    for _ in range(3):
        await cluster.step()
    assert cluster.jobs.started == [NAME, NAME]
    assert cluster.status["phase"] == "FAILED"


@pytest.mark.parametrize("state", [State.PAUSED, State.STOPPED, State.SUSPENDED])
def test_a_job_that_was_stopped_elsewhere_is_started_again(state):
    @on_cluster
    async def scenario(cluster):
        await cluster.settle()
        cluster.jobs.end(NAME, state)
        await cluster.settle()
        assert cluster.jobs.started == [NAME, NAME]
        assert cluster.status["phase"] == "RUNNING"

    scenario()


@pytest.mark.parametrize("state", [State.FINISHED, State.CANCELED, State.FAILED])
def test_a_job_that_ended_stays_ended(state):
    @on_cluster
    async def scenario(cluster):
        await cluster.settle()
        cluster.jobs.end(NAME, state)
        for _ in range(3):
            await cluster.step()
        assert cluster.jobs.started == [NAME]
        assert cluster.status["phase"] == state.value

    scenario()


@on_cluster
async def test_a_running_job_of_somebody_else_is_left_alone(cluster):
    cluster.jobs.request("/jobs", "", {"plugin": "x", "name": NAME, "options": {}}, "other")
    cluster.jobs.look(0)
    await cluster.settle()

    assert cluster.synced["reason"] == "JobExists"
    assert cluster.jobs.performed == ["submit"]


@on_cluster
async def test_a_start_in_the_queue_is_withdrawn_when_the_spec_changes(cluster):
    cluster.jobs.held.add("submit")
    for _ in range(3):
        await cluster.step()
    cluster.change(parallelism=1)
    await cluster.step()
    cluster.jobs.held.clear()
    await cluster.settle()

    assert cluster.jobs.operations[0].state == "canceled"
    assert cluster.jobs.runs[NAME].parallelism == 1
    assert cluster.jobs.started == [NAME]


@on_cluster
async def test_a_service_that_does_not_answer_changes_nothing(cluster):
    await cluster.settle()
    cluster.jobs.is_down = True
    with pytest.raises(Unavailable):
        await cluster.step()

    cluster.jobs.is_down = False
    await cluster.settle()
    assert cluster.jobs.performed == ["submit"]


@pytest.mark.parametrize(
    ("policy", "state"),
    [
        ("Drain", State.FINISHED), ("Savepoint", State.SUSPENDED), ("Cancel", State.CANCELED),
        (None, State.SUSPENDED),
    ],
)  # fmt: skip
def test_a_deleted_resource_ends_its_job_by_its_policy(policy, state):
    @on_cluster
    async def scenario(cluster):
        cluster.change(deletionPolicy=policy)
        await cluster.settle()
        await cluster.delete()
        assert cluster.jobs.runs[NAME].state is state
        assert len(cluster.jobs.performed) == 2

    scenario()


@on_cluster
async def test_a_failed_end_is_requested_again(cluster):
    await cluster.settle()
    cluster.jobs.fails["suspend"] = QUOTA_EXCEEDED(owner="a", what="b", limit=1, used=1, hint="c")
    await cluster.delete()

    assert cluster.jobs.runs[NAME].state is State.SUSPENDED


async def attempt(cluster):
    """Wait for the next retry, and make the steps of one attempt."""
    cluster.now_s += RETRY_S
    for _ in range(3):
        await cluster.step()


@on_cluster
async def test_a_deleted_resource_whose_savepoint_fails_is_kept_until_it_succeeds(cluster):
    await cluster.settle()
    cluster.jobs.unsaved = NO_ACCESS
    cluster.mark_deleted()
    for _ in range(4):
        await cluster.step()
    for count in (2, 3):
        assert cluster.jobs.runs[NAME].state is State.STOPPED
        assert not cluster.is_over
        assert cluster.synced["reason"] == "Retrying"
        assert cluster.synced["message"].startswith("savepoint: BIC-1136: ")
        assert [each.kind for each in cluster.jobs.operations].count("savepoint") == count - 1
        await attempt(cluster)
    cluster.jobs.unsaved = None
    await attempt(cluster)

    assert cluster.is_over
    assert cluster.jobs.performed == ["submit", "savepoint"]
    assert cluster.status["lastSavepoint"] == {"url": "file:/s/now", "epoch": 7}
    keys = [each.key for each in cluster.jobs.operations]
    assert len(keys) == len(set(keys))


@on_cluster
async def test_a_deleted_resource_without_savepoint_is_released_by_another_policy(cluster):
    await cluster.settle()
    cluster.jobs.unsaved = NO_ACCESS
    cluster.mark_deleted()
    await attempt(cluster)
    assert not cluster.is_over

    cluster.change(deletionPolicy="Cancel")
    await cluster.step()
    assert cluster.is_over


@on_cluster
async def test_a_deleted_resource_whose_job_has_no_epoch_has_nothing_to_save(cluster):
    await cluster.settle()
    cluster.jobs.unsaved = NO_EPOCH
    await cluster.delete()

    assert [each.kind for each in cluster.jobs.operations] == ["submit", "suspend"]


@on_cluster
async def test_a_savepoint_that_another_client_requested_does_not_keep_a_deleted_resource(cluster):
    await cluster.settle()
    cluster.jobs.end(NAME, State.STOPPED)
    cluster.jobs.unsaved = NO_ACCESS
    cluster.jobs.request("/jobs/{job_id}/savepoints", NAME, {}, "other")
    await cluster.delete()

    assert [each.kind for each in cluster.jobs.operations] == ["submit", "savepoint"]


@pytest.mark.parametrize("change", [{"suspend": True}, {"params": {"topic": "b"}}])
def test_a_stop_whose_savepoint_fails_is_not_applied_until_it_succeeds(change):
    @on_cluster
    async def scenario(cluster):
        cluster.change(savepointPolicy="OnStop")
        await cluster.settle()
        cluster.jobs.unsaved = NO_ACCESS
        cluster.change(**change)
        await cluster.settle()
        assert cluster.synced["reason"] == "Retrying"
        assert cluster.jobs.performed == ["submit"]

        cluster.jobs.unsaved = None
        await attempt(cluster)
        await cluster.settle()
        assert cluster.synced["reason"] == "Applied"
        assert cluster.jobs.performed[:2] == ["submit", "savepoint"]

    scenario()


@on_cluster
async def test_a_deleted_resource_withdraws_its_start_from_the_queue(cluster):
    cluster.jobs.held.add("submit")
    for _ in range(3):
        await cluster.step()
    await cluster.delete()

    assert [each.state for each in cluster.jobs.operations] == ["canceled"]


@on_cluster
async def test_an_old_list_of_jobs_causes_no_second_operation(cluster):
    """The service and the operator look at jobs from time to time only."""
    cluster.service.age_s = 1e9
    cluster.change(suspend=False)
    for suspend in (False, True, False):
        cluster.change(suspend=suspend)
        for _ in range(8):
            await cluster.step()
        cluster.service._lists.clear()
        await cluster.settle()

    assert cluster.jobs.performed == ["submit", "pause", "submit"]
    assert cluster.status["phase"] == "RUNNING"
