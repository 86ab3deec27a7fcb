"""The pages about calls in flight and about batch mode say what is so."""

import gc
import re
import types

import pytest

from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.jobs.options import JobOptions
from bicycle_runtime.jobs.status import OperatorStatus
from bicycle_runtime.testing import Harness
from bicycle_sdk import DataStream
from bicycle_sdk.options import describe
from bicycle_sdk.testing import FunctionHarness
from tests.docs.scripts import DOCS

PAGE = (DOCS / "how-to/async.md").read_text("utf-8")
BATCH_PAGE = (DOCS / "how-to/batch-mode.md").read_text("utf-8")


@pytest.fixture
def module():
    found = types.ModuleType("async_page")
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    exec(compile("\n".join(blocks), "async.md", "exec"), found.__dict__)
    return found


def test_the_job_with_a_call_for_each_record_gives_what_the_page_says(module):
    with Harness(lambda env: module.cities(env, ["ada", "nobody", "grace"])) as harness:
        harness.run()

        assert sorted(harness.results("cities")) == [("ada", "London"), ("grace", "New York")]


def test_the_test_of_the_page_passes(module):
    module.test_a_text_that_the_model_refuses_is_left_out_alone()


def test_a_function_harness_calls_functions_as_they_are(module):
    assert FunctionHarness(module.City()).process("ada") == [("ada", "London")]
    assert FunctionHarness(module.Lengths()).process("ada", "bob") == [("ada", 3), ("bob", 3)]
    gc.collect()  # What they leave open would be a warning here.


def test_the_calls_of_the_table_exist():
    rows = re.findall(r"^\| [^|]+ \| (`\w+`(?:, `\w+`)*) \| `\w+", PAGE, re.MULTILINE)
    calls = {name for row in rows for name in re.findall(r"\w+", row)}

    assert len(calls) == 5
    assert {name for name in calls if not hasattr(DataStream, name)} == set()


@pytest.mark.parametrize("page", [PAGE, BATCH_PAGE], ids=["async", "batch-mode"])
def test_the_options_that_are_named_exist(page):
    flags = {info.flag for cls in (JobOptions, EngineOptions) for info in describe(cls)}
    named = set(re.findall(r"--[a-z][a-z-]+", page)) - {"--set"}

    assert named
    assert named <= flags


def test_the_fields_of_the_status_that_are_named_exist():
    (row,) = re.findall(r"in the status of the job \((.*?) of the operator\)", PAGE)

    assert set(re.findall(r"`(\w+)`", row)) <= set(OperatorStatus.__struct_fields__)
