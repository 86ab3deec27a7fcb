"""Jobs in one file sent to a service: stored by content, checked, removed."""

import json

import pytest

from bicycle_runtime.extraction.scripts import file_name, text_to_send
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.options import JobOptions, JobRequest
from bicycle_runtime.service.operations.pipeline_files import (
    PipelineFile,
    clear_pipelines,
    keep_pipeline,
)
from bicycle_sdk.errors import BicycleError
from tests.unit.jobs.job_samples import put_job

TEXT = """
name = "tally"
[source]
kind = "file"
path = "in.jsonl"
[ops]
count_by = "word"
[sink]
kind = "console"
"""

SQL = """
CREATE TABLE words (word VARCHAR) WITH (kind = 'file', path = 'in.jsonl');
CREATE TABLE seen (word VARCHAR) WITH (kind = 'console');
INSERT INTO seen SELECT word FROM words;
"""


PROGRAM = """
from bicycle_sdk import bicycle_plugin

@bicycle_plugin(name="clicks", version="1")
def by_user(env):
    env.read_text("in.txt").print()

@bicycle_plugin(name="pages", version="1")
def by_page(env):
    env.read_text("in.txt").print()
"""


@pytest.fixture
def home(tmp_path):
    found = Home(tmp_path / "home")
    found.prepare()
    return found


def test_a_pipeline_is_kept_by_its_content_for_its_owner_only(home):
    path = keep_pipeline(home, PipelineFile(file="tally.toml", text=TEXT))
    again = keep_pipeline(home, PipelineFile(file="tally.toml", text=TEXT))
    other = keep_pipeline(home, PipelineFile(file="tally.toml", text=TEXT + "\n"))

    assert path == again != other
    assert path.read_text() == TEXT
    assert path.stat().st_mode & 0o077 == 0


def test_an_sql_file_is_stored_as_a_pipeline_is(home):
    path = keep_pipeline(home, PipelineFile(file="seen.sql", text=SQL))

    assert path.read_text() == SQL
    assert path.name == "seen.sql"


def test_a_folder_of_sql_files_is_stored_as_one_file(home, tmp_path):
    (tmp_path / "views").mkdir()
    tables, query = SQL.strip().rsplit("\n", 1)
    (tmp_path / "views" / "a.sql").write_text(query)
    (tmp_path / "views" / "b.sql").write_text(tables)
    folder = str(tmp_path / "views" / "*.sql")
    sent = PipelineFile(file=file_name(folder), text=text_to_send(folder))

    assert keep_pipeline(home, sent).name == "views.sql"
    (tmp_path / "views" / "a.sql").write_text(query.replace("word ", "wrod "))
    with pytest.raises(BicycleError, match=r"a\.sql:1:25: there is no column 'wrod'"):
        keep_pipeline(home, PipelineFile(file="views.sql", text=text_to_send(folder)))


def test_a_python_file_is_stored_without_the_name_of_its_function(home):
    path = keep_pipeline(home, PipelineFile(file="clicks.py:by_user", text=PROGRAM))

    assert path.name == "clicks.py:by_user"
    assert (path.parent / "clicks.py").read_text() == PROGRAM


@pytest.mark.parametrize(
    ("file", "text", "code"),
    [
        ("clicks.py", PROGRAM, "BIC-1618"),
        ("clicks.py", "def job(", "BIC-1618"),
        ("clicks.py", "import os", "BIC-1618"),
        ("clicks.py:", PROGRAM, "BIC-2305"),
        ("clicks.toml:by_user", TEXT, "BIC-2305"),
        ("../tally.toml", TEXT, "BIC-2305"),
        ("/etc/tally.toml", TEXT, "BIC-2305"),
        (".toml", TEXT, "BIC-2305"),
        ("x" * 101 + ".toml", TEXT, "BIC-2305"),
        ("tally.toml\n", TEXT, "BIC-2305"),
        ("tally.toml", "name = ", "BIC-2700"),
        ("seen.sql", SQL.replace("word FROM", "wort FROM"), "BIC-3200"),
        ("tally.toml", 'name = "x"\n[sink]\nkind = "nothing"', "BIC-2701"),
    ],
)
def test_what_is_no_pipeline_is_refused_and_not_kept(home, file, text, code):
    with pytest.raises(BicycleError) as caught:
        keep_pipeline(home, PipelineFile(file=file, text=text))

    assert caught.value.code == code
    assert list(home.path.glob("service/pipelines/*/*")) == []


def newer_request():
    """Return a request with an option that this version does not know."""
    plain = JobRequest(options=JobOptions(plugin="tally")).to_json()
    return json.dumps({**plain, "options": {**plain["options"], "hover_ms": 3}})


def test_what_no_job_has_and_none_waits_for_is_removed(home):
    used, waiting, left = (
        keep_pipeline(home, PipelineFile(file="tally.toml", text=TEXT + "\n" * count))
        for count in range(3)
    )
    put_job(home, "job")
    home.folder("job").write_request(JobRequest(options=JobOptions(plugin=str(used))))

    program = keep_pipeline(home, PipelineFile(file="clicks.py:by_user", text=PROGRAM))

    unreadable = put_job(home, "odd").request_path
    for content in ("", "[]", "{}", '{"format_version": 2}', newer_request()):
        unreadable.write_text(content)
        clear_pipelines(home, waiting=())
        assert [path.exists() for path in (used, waiting, left)] == [True, True, True]
    unreadable.unlink()

    clear_pipelines(home, waiting={str(waiting), str(program), "wordcount"})

    assert [path.exists() for path in (used, waiting, left)] == [True, True, False]
    assert (program.parent / "clicks.py").exists()
    assert not left.parent.exists()
