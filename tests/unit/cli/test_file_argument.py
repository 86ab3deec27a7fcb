"""A file in the place of ``--plugin``: one of the two, never both."""

import pytest

JOB = """
from bicycle_sdk import bicycle_plugin

@bicycle_plugin
def job(env):
    env.from_collection(["a"]).uid("in").print().uid("out")
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "first.py").write_text(JOB)
    return str(tmp_path / "first.py")


def test_plan_and_graph_take_a_file(shell, file):
    assert shell.answer("plan", file)["plugin"] == "job"
    assert shell.answer("graph", f"{file}:job")["job"] == "job"


@pytest.mark.parametrize("command", ["run", "submit", "plan", "graph"])
def test_a_job_is_a_file_or_a_plugin_and_not_both_or_none(shell, file, command):
    for words in ([], [file, "--plugin", "job"], ["clicks"]):
        code, error = shell.error(command, *words)
        assert (code, error["code"]) == (2, "BIC-2001")
        assert "--plugin" in error["message"]


def test_the_graph_as_json_has_the_figures_of_the_optimizer(shell, file):
    answer = shell.answer("graph", file, "--parallelism", "1")
    figures = answer["chaining"]
    assert (figures["operators_before"], figures["tasks_before"]) == (2, 2)
    assert figures["tasks_after"] == sum(answer["stages"])
    assert figures["task_reduction_percent"] == 50.0
    assert figures["min_slots_needed"] == 1
    assert answer["tasks_without_chaining"] == 2
