"""The forms of operations on the pages of a job follow from the rows of the operations."""

import os
import re

import pytest

from bicycle_runtime.base.processes import start_ticks
from bicycle_runtime.jobs.status import JobState
from bicycle_runtime.service.operations.kinds import KINDS
from tests.unit.api.asking import asked_of
from tests.unit.api.test_owners import DIGEST, OTHER, put_plugin
from tests.unit.jobs.job_samples import put_job
from tests.waiting import until

WITH_BUTTON = [name for name, kind in KINDS.items() if kind.button]


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    with asked_of(tmp_path_factory.mktemp("forms") / "home") as found:
        home = found.service.home
        put_plugin(home, OTHER)
        process = {"pid": os.getpid(), "pid_started": start_ticks(os.getpid())}
        put_job(home, "runs", state=JobState.RUNNING, plugin="wordcount", **process)
        until(lambda: found("GET", "/api/v1/jobs/runs").code == 200, "the job")
        yield found


def page(ask, path):
    return ask.page(path).data.decode()


@pytest.mark.parametrize("name", WITH_BUTTON)
def test_a_form_has_a_field_for_each_input(ask, name):
    answer = ask.page(f"/jobs/runs/actions/{name}")
    if answer.code == 303:  # Not in this state of the job.
        assert KINDS[name].available in ("ended", "attention")
        return
    text = answer.data.decode()

    assert f'action="/jobs/runs/actions/{name}"' in text
    for each in KINDS[name].inputs:
        assert len(re.findall(rf'name="{each}"', text)) == 1, each


def test_the_form_of_an_upgrade_shows_versions_choices_and_defaults(ask):
    text = page(ask, "/jobs/runs/actions/upgrade")

    assert f'<option value="{DIGEST[OTHER]}">' in text
    assert "<option selected>stop-and-go</option>" in text
    assert "<option>blue-green</option>" in text
    assert 'placeholder="60000"' in text
    assert 'type="checkbox" name="skip_savepoint"' in text
    assert "Show the plan" in text


def test_an_operation_with_a_plan_has_a_page_and_no_dialog(ask):
    text = page(ask, "/jobs/runs")

    assert '<a class="button" href="/jobs/runs/actions/upgrade">Upgrade</a>' in text
    assert 'id="ask-upgrade"' not in text
    assert 'id="ask-rescale"' in text


def test_the_plan_is_requested_before_the_upgrade(ask):
    facts = {"digest": DIGEST[OTHER], "plugin": f"{OTHER}-plugin", "strategy": "blue-green"}
    asked = ask.page("/jobs/runs/actions/upgrade", facts)
    operations = ask("GET", "/api/v1/operations").json["items"]

    assert (asked.code, asked.headers["location"]) == (303, "/plugins/operations/1")
    assert [each["kind"] for each in operations] == ["plan_upgrade"]
    assert "Upgrade of runs" in page(ask, "/plugins/operations/1")


@pytest.mark.parametrize("name", ["delete_savepoint", "restore", "cancel", "upgrade"])
def test_an_operation_does_not_claim_to_wait_for_an_epoch(name):
    assert not KINDS[name].waits_for_epoch
    assert KINDS["savepoint"].waits_for_epoch
