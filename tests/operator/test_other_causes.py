"""Jobs that end or change without their resource: with the service, or by another client."""

from bicycle_operator import reconciling
from bicycle_runtime.jobs.control.job_queries import job_status
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.service.watching.states import State
from tests.operator.clusters import on_cluster
from tests.unit.jobs.job_samples import put_job

NAME = "shop.clicks"


def test_a_job_without_processes_has_the_error_that_the_operator_knows(tmp_path):
    home = Home(tmp_path)
    home.prepare()
    put_job(home, "clicks", started_ms=1)

    assert job_status(home, "clicks").error["code"] == reconciling._LOST


@on_cluster
async def test_an_upgrade_by_another_client_is_kept_where_the_resource_names_no_version(cluster):
    cluster.change(version=None)
    await cluster.settle()
    body = {"digest": "a-clicks-2.0", "plugin": "clicks"}
    asked = cluster.jobs.request("/jobs/{job_id}/upgrade", NAME, body, "theirs")
    cluster.jobs.look(asked.id)
    cluster.change(parallelism=3)
    await cluster.settle()
    assert cluster.synced["reason"] == "Applied"
    assert cluster.jobs.performed == ["submit", "upgrade", "rescale"]

    cluster.jobs.end(NAME, State.FAILED)
    for _ in range(3):
        await cluster.step()
    assert cluster.jobs.started == [NAME]
