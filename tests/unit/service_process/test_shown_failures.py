"""What API and page say first of a failure in a function: what, where, in which operator, on what.

The command line is held against the same in ``tests/spark/test_errors_run.py``.
"""

import html
import re

import pytest

from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.status import JobState, OperatorStatus
from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk.errors import BicycleError
from tests.unit.jobs.job_samples import put_job
from tests.unit.service_process.served import Served
from tests.waiting import until

FIRST_LINES = 15


def parse(line):
    return int(line)  # Here it raises.


def build(env):
    lines = env.add_source(script_source(str)).uid("lines")
    lines.key_by(lambda line: line[:1]).map(parse).uid("parse").name("parse numbers").collect("out")


@pytest.fixture
def error():
    with Harness(build) as harness:
        harness.push(["17", "x2"])
        with pytest.raises(BicycleError) as failed:
            harness.run_epoch()
    return failed.value


@pytest.fixture
def served(tmp_path, error):
    put_job(
        Home(tmp_path / "home"), "job", state=JobState.FAILED, started_ms=1, ended_ms=2,
        error=error.to_json(), operators={"parse": OperatorStatus(parallelism=1)},
    )  # fmt: skip
    found = Served(tmp_path / "home").start()
    yield found
    found.end()


def test_the_first_lines_of_a_failure_are_in_the_api_and_on_the_page(served):
    [entry] = until(lambda: served.get("/api/v1/jobs/job/exceptions")["items"], "the failure")
    page = served.ask("GET", "/jobs/job/exceptions")[2].decode()

    line = parse.__code__.co_firstlineno + 1
    assert entry["message"].startswith("ValueError: invalid literal")
    assert entry["location"] == f"{__file__}:{line} in parse"
    assert (entry["task_id"], entry["task_index"]) == ("job-parse", 0)
    # Behind an exchange the span of the batch is known, and the key.
    assert entry["position"].startswith("record 0 of the script or later, before ")
    assert "bicycle_runtime" not in entry["stack_trace"]
    assert "bicycle_runtime" in entry["whole_trace"]
    section = page.partition('id="exception-1"')[2].partition("</section>")[0]
    section, is_folded, fold = section.partition("<details>")  # Closed until somebody opens it.
    assert is_folded
    assert html.unescape(fold).count(entry["whole_trace"]) == 1
    text = html.unescape(re.sub(r"<[^>]*>", "", section.partition(">")[2]))
    first = "\n".join([each for each in text.splitlines() if each.strip()][:FIRST_LINES])
    parts = (
        *("ValueError: invalid literal", f"{__file__}:{line} in parse", "'parse' (parse numbers)"),
        *("of plugin harness 0", "record 0 of the script or later", "key 'x'"),
    )
    assert [part for part in parts if part not in first] == [], first
    assert "bicycle_runtime" not in first
    assert "\nx2\n" not in text  # A value is told in the message of its author alone.
