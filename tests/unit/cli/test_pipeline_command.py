"""``bicycle pipeline``: each command once, and what a person sees."""

import json

import pytest

from tests.docs.pipeline_blocks import readme_pipeline
from tests.unit.pipelines.test_problems import GOOD


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clicks.toml").write_text(GOOD)
    return "clicks.toml"


def test_a_good_pipeline_is_shown_as_a_row_of_operators(shell, file):
    done = shell.run("pipeline", "check", file)

    assert done.exit_code == 0, done.output
    good, remark = done.output.splitlines()
    assert good == "clicks.toml is valid: source -> time -> key -> window -> sink"
    assert remark.startswith("clicks.toml:7:1: allowed_lateness is an alias")
    answer = shell.answer("pipeline", "check", file)
    assert (answer["name"], answer["remarks"]) == ("clicks", [remark])


def test_a_bad_pipeline_is_told_by_every_command_before_anything_starts(shell, file, tmp_path):
    (tmp_path / file).write_text(GOOD.replace("tumbling", "tumblng"))

    for words in (
        ["pipeline", "check", file],
        ["run", "-c", file],
        ["submit", file],
        ["plan", file],
    ):
        code, error = shell.error(*words)
        assert (code, error["code"]) == (4, "BIC-2701")
        assert error["facts"]["problems"][0]["line"] == 9
    assert shell.home.folders() == []


def test_a_new_pipeline_passes_its_test_and_is_not_overwritten(shell, file):
    assert shell.run("pipeline", "new", "more.yaml").exit_code == 0
    assert shell.answer("pipeline", "test", "more.yaml")["passed"] == ["two pages in one minute"]
    assert shell.run("pipeline", "test", "more.yaml").output == "more.yaml: 1 passed\n"

    assert shell.error("pipeline", "new", "more.yaml")[1]["code"] == "BIC-2700"


def test_a_test_that_fails_shows_the_rows(shell, tmp_path, file):
    shell.run("pipeline", "new", "more.toml")
    path = tmp_path / "more.toml"
    path.write_text(path.read_text().replace("count = 2", "count = 3"))

    done = shell.run("pipeline", "test", "more.toml")

    assert done.exit_code != 0
    assert 'sink: missing: {"count": 3, "page": "/"' in done.stderr
    assert 'sink: unexpected: {"count": 2, "page": "/"' in done.stderr


def test_a_pipeline_is_converted_to_standard_output(shell, file):
    yaml = shell.run("pipeline", "convert", file, "--to", "yaml", "--form", "vertices").output

    assert yaml.startswith("name: clicks\nvertices:\n- id: source\n")
    assert shell.answer("pipeline", "convert", file)["source"]["kind"] == "file"


def test_a_pipeline_is_converted_to_sql_or_refused_with_a_line(shell, file, tmp_path):
    text = """
        [source]
        kind = "file"
        path = "in.jsonl"
        fields = { page = "string" }
        [[steps]]
        operator = "filter"
        where = "page <> '/'"
        [sink]
        kind = "console"
    """
    (tmp_path / file).write_text(text)

    sql = shell.run("pipeline", "convert", file, "--to", "sql").output
    assert "WHERE page <> '/'" in sql
    assert shell.answer("pipeline", "convert", file, "--to", "sql")["sql"].rstrip() == (
        sql.rstrip()
    )
    (tmp_path / file).write_text(text.replace('"filter"', '"dedup"').replace(
        "where = \"page <> '/'\"", 'fields = ["page"]'
    ))  # fmt: skip
    refused = shell.run("pipeline", "convert", file, "--to", "sql")
    assert "clicks.toml:6:9: dedup-1 (dedup): SQL files cannot keep the first" in refused.stderr
    assert "not to SQL" in shell.run(
        "pipeline", "convert", file, "--to", "sql", "--form", "short"
    ).stderr  # fmt: skip


def test_the_schema_is_printed(shell):
    assert json.loads(shell.run("pipeline", "schema").output)["title"] == "Pipeline"


def test_a_name_that_is_no_pipeline_is_refused(shell):
    assert "is not a FILE.toml" in shell.run("pipeline", "check", "clicks.py").stderr
    assert "is not a FILE.toml" in shell.run("run", "--config", "clicks.py").stderr


def test_graph_and_plan_take_a_pipeline_and_tell_which_way_each_operator_goes(
    shell, file, tmp_path
):
    file = (tmp_path / file).rename(tmp_path / "visits.toml").name
    graph = shell.run("graph", file)
    assert graph.exit_code == 0, graph.output
    assert "source -> time -> key" in graph.output

    plan = shell.run("plan", file)
    assert plan.exit_code == 0, plan.output
    assert "guarantee: exactly-once end to end" in plan.output
    ways = dict(line.strip().split(": ", 1) for line in works_on(plan.output))
    assert ways == {
        "source": "columns",
        "time": "columns",
        "key": "columns",
        "window-combine": "columns",
        "window": "columns",
        "window-rows": "columns",
        "sink": "columns",
    }


def test_plan_says_why_a_pipeline_goes_record_by_record(shell, file, tmp_path):
    text = "".join(line for line in GOOD.splitlines(True) if "size" not in line)
    text = text.replace('"tumbling"', '"count"\nrecords = 3')
    file = (tmp_path / file).rename(tmp_path / "visits.toml").name
    (tmp_path / file).write_text(text)

    ways = works_on(shell.run("plan", file).output)

    assert "  window: records, because records are not pre-aggregated before the shuffle" in ways
    assert (
        "  source: records, because no window, map or sink of its chain supports columns"
        in "\n".join(ways)
    )


def works_on(plan):
    lines = plan.splitlines()
    start = lines.index("works on:") + 1
    return [line for line in lines[start : start + 7] if line.startswith("  ")]


def test_the_pipeline_of_the_readme_folds_messages_of_kafka_on_columns(shell, tmp_path):
    (tmp_path / "minutes.toml").write_text(readme_pipeline())

    done = shell.run("plan", str(tmp_path / "minutes.toml"))

    assert done.exit_code == 0, done.output
    assert "guarantee: exactly-once end to end" in done.output
    assert [line for line in works_on(done.output) if line.endswith(": columns")] == [
        f"  {uid}: columns"
        for uid in ("source", "time", "key", "window-combine", "window", "window-rows", "sink")
    ]
