"""A folder of SQL files at the commands that accept a job in a file."""

import pytest

TABLES = """\
CREATE TABLE words (n BIGINT, who VARCHAR) WITH (kind = 'file', path = 'words.jsonl');
CREATE TABLE loud (who VARCHAR) WITH (kind = 'console');
"""


@pytest.fixture
def views(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "a.sql").write_text("INSERT INTO loud SELECT upper(who) FROM big")
    (tmp_path / "views" / "big.sql").write_text(
        "CREATE VIEW big AS SELECT * FROM words WHERE n > 1"
    )
    (tmp_path / "views" / "tables.sql").write_text(TABLES)
    return tmp_path / "views"


def test_plan_and_graph_accept_a_folder_in_each_notation(shell, views, monkeypatch):
    plan = shell.run("plan", "views")
    assert plan.exit_code == 0, plan.output
    assert "big-where" in plan.output
    assert shell.run("plan", "views/").output == plan.output
    (views / "more").mkdir()
    for place, folder in ((views.parent, "views"), (views, "."), (views / "more", "..")):
        monkeypatch.chdir(place)
        assert "job views: 5 operators" in shell.run("graph", folder).output


def test_a_wrong_file_of_a_folder_is_named(shell, views):
    (views / "a.sql").write_text("\nINSERT INTO loud SELECT whoo FROM big")
    code, error = shell.error("plan", "views")

    assert (code, error["code"]) == (4, "BIC-3200")
    [problem] = error["facts"]["problems"]
    assert (problem["file"], problem["line"], problem["column"]) == ("views/a.sql", 2, 25)


def test_a_folder_without_sql_files_is_refused(shell, views):
    (views / "empty").mkdir()
    assert "views/empty: it has no SQL files" in shell.run("plan", "views/empty").stderr


VIEW_TEST = """\
statement ok
INSERT INTO words VALUES (1, 'ada'), (2, 'bob')

query IT
SELECT * FROM big
----
2 bob
"""


def test_tests_of_views_are_found_in_folders(shell, views):
    assert "contains no .slt files" in shell.run("sql", "test", "views").stderr
    (views / "more").mkdir()
    (views / "big.slt").write_text(VIEW_TEST)
    (views / "more" / "own.slt").write_text(
        "statement ok\nCREATE TABLE words (n BIGINT, who VARCHAR)\n\n"
        + VIEW_TEST.replace("big", "words WHERE n > 1")
    )

    done = shell.run("sql", "test", "views")
    assert done.exit_code == 0, done.output
    assert done.output.splitlines() == [
        "views/big.slt: 2 records passed", "views/more/own.slt: 3 records passed",
    ]  # fmt: skip
    (views / "big.slt").write_text(VIEW_TEST.replace("2 bob", "2 cy"))
    assert "views/big.slt:4: " in shell.run("sql", "test", "views").stderr
