"""A job in one file: which function it is, what is packed, and that errors name its lines."""

import textwrap
import zipfile
from pathlib import Path

import pytest

from bicycle_runtime.extraction.errors import MISSING_DEPENDENCY, PLUGIN_RAISED, SCRIPT_UNUSABLE
from bicycle_runtime.extraction.extract import extract
from bicycle_runtime.extraction.scripts import (
    is_script,
    pack_script,
    read_pipeline,
    script_name,
    text_to_send,
)
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.options import JobOptions, JobRequest
from bicycle_runtime.jobs.plugins.environments import find_plugin
from tests.raising import raises

ONE = """
    import bicycle_sdk
    from bicycle_sdk import bicycle_plugin

    def shout(word):
        return word.upper()

    @bicycle_plugin(name="loud", version="9.9")
    def job(env):
        env.from_collection(["a"]).uid("in").map(shout).uid("shout").print().uid("out")
"""
TWO = (
    ONE
    + """
    @bicycle_sdk.bicycle_plugin
    def quiet(env):
        raise RuntimeError("not today")
"""
)


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()

    def write(text, name="my job.py"):
        (tmp_path / name).write_text(textwrap.dedent(text), "utf-8")
        return str(tmp_path / name)

    return write


def extracted(text, tmp_path):
    options = JobOptions(plugin=text)
    return extract(find_plugin(options, Home(tmp_path / "home")).ref, {})


def test_a_file_is_a_job_with_the_digest_of_its_content_as_version(script, tmp_path):
    path = script(ONE)
    bundle = extracted(path, tmp_path)
    assert (bundle.plugin, len(bundle.plugin_version)) == ("loud", 12)
    assert bundle.graph.vertex("shout").location == f"{path}:10"
    assert set(bundle.shipping.values()) == {"by reference"}

    other = extracted(script(ONE.replace("upper", "lower")), tmp_path)
    assert other.plugin_version != bundle.plugin_version
    assert extracted(script(ONE), tmp_path).digest == bundle.digest


def test_a_file_with_several_jobs_needs_the_name_of_one(script, tmp_path):
    path = script(TWO)
    with raises(SCRIPT_UNUSABLE) as caught:
        extracted(path, tmp_path)
    assert "job, quiet" in caught.value.facts["problem"]
    assert extracted(f"{path}:job", tmp_path).plugin == "loud"
    with raises(PLUGIN_RAISED) as raised:
        extracted(f"{path}:quiet", tmp_path)
    assert raised.value.facts["location"] == f"{path}:14"


def test_a_function_that_a_file_does_not_have_is_refused_with_its_jobs(script, tmp_path):
    path = script(TWO)
    with raises(SCRIPT_UNUSABLE) as caught:
        extracted(f"{path}:jbo", tmp_path)
    assert caught.value.facts["problem"] == "it has no function 'jbo'"
    assert caught.value.facts["hint"].endswith("my job.py:job, my job.py:quiet")


def test_a_neighbor_may_have_the_name_that_the_packed_module_would_have(script, tmp_path):
    script("name = 'ada'\n", "visits_job.py")
    path = script("from visits_job import name\n" + textwrap.dedent(ONE), "visits.py")
    assert extracted(path, tmp_path).plugin == "loud"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x = 1\n", "it has no job"),
        ("def (\n", "line 1"),
        ("x = 1\ny = '\0'\n", "line 2"),
        (None, "No such file"),
    ],
    ids=["no job", "no Python", "a null byte", "no file"],
)
def test_a_file_that_is_no_job_is_refused_in_words(script, tmp_path, text, problem):
    path = str(tmp_path / "none.py") if text is None else script(text)
    with raises(SCRIPT_UNUSABLE) as caught:
        pack_script(path, cache_dir=tmp_path)
    assert problem in caught.value.facts["problem"]


def test_a_pipeline_may_begin_with_a_mark_and_is_utf_8(tmp_path):
    path = tmp_path / "p.toml"
    text = 'name = "n"\n[source]\nkind = "file"\npath = "é"\n'
    path.write_bytes(text.encode("utf-8-sig"))

    assert read_pipeline(str(path)).data["source"] == {"kind": "file", "path": "é"}
    path.write_bytes(text.encode("latin-1"))
    with raises(SCRIPT_UNUSABLE, match="line 4: byte 0xe9 is not UTF-8"):
        read_pipeline(str(path))


def test_what_is_packed_is_the_same_for_the_same_content(script, tmp_path):
    path = script(ONE)
    first = pack_script(path, cache_dir=tmp_path / "a")[1]
    again = pack_script(path, cache_dir=tmp_path / "b")[1]
    assert first.digest == again.digest
    assert first.path.read_bytes() == again.path.read_bytes()


def test_names_of_plugins_are_no_files():
    assert not is_script("clicks")
    assert not is_script("clicks:job")
    assert is_script("a/b.py:job")
    assert script_name("wordcount") == "wordcount"


def test_the_command_that_goes_on_names_the_file():
    request = JobRequest(options=JobOptions(plugin="clicks.py", name="c"))
    assert request.command_words("run") == ["bicycle", "run", "clicks.py", "--name", "c"]


NEIGHBORS = """
    from bicycle_sdk import bicycle_plugin
    from helpers import shout
    import parts.more

    @bicycle_plugin
    def job(env):
        env.from_collection(["a"]).uid("in").map(shout).map(parts.more.twice).print().uid("out")
"""


@pytest.fixture
def neighbors(script, tmp_path):
    path = script(NEIGHBORS)
    script(
        "from parts.more import twice\n\ndef shout(word):\n    return twice(word.upper())\n",
        "helpers.py",
    )
    (tmp_path / "parts").mkdir()
    script("def twice(word):\n    return word * 2\n", "parts/more.py")
    script("a table", "parts/table.txt")
    script("raise RuntimeError('nobody imports it')\n", "stranger.py")
    return path


def test_modules_of_the_folder_that_a_file_imports_come_along(neighbors, script, tmp_path):
    ref, packed = pack_script(neighbors, cache_dir=tmp_path / "cache")
    with zipfile.ZipFile(packed.path) as archive:
        assert sorted(archive.namelist()) == [
            "helpers.py", "my_job_job.py", "parts/more.py", "parts/table.txt"
        ]  # fmt: skip

    bundle = extracted(neighbors, tmp_path)
    assert set(bundle.shipping.values()) == {"by reference"}
    assert bundle.plugin_version == ref.version

    script("def twice(word):\n    return word * 3\n", "parts/more.py")
    assert extracted(neighbors, tmp_path).plugin_version != ref.version


def test_modules_of_the_functions_of_an_sql_file_come_along(neighbors, script, tmp_path):
    text = script(
        "CREATE FUNCTION shout AS 'helpers:shout';\nSELECT 'no FUNCTION AS', 'stranger:x';", "v.sql"
    )

    for of_plugins, expected in (
        (False, ["helpers.py", "parts/more.py", "parts/table.txt", "v_job.py"]),
        (True, ["v_job.py"]),
    ):
        _, packed = pack_script(text, cache_dir=tmp_path / "cache", of_plugins=of_plugins)
        with zipfile.ZipFile(packed.path) as archive:
            assert sorted(archive.namelist()) == expected


def test_an_error_of_a_neighbor_names_its_file_and_line(neighbors, script, tmp_path):
    script("import parts\n\nraise RuntimeError('not today')\n", "helpers.py")

    with raises(PLUGIN_RAISED) as caught:
        extracted(neighbors, tmp_path)

    assert caught.value.facts["location"] == "helpers.py:3"
    assert "/environments" not in str(caught.value)


@pytest.mark.parametrize(
    ("call", "hint"),
    [("tumbling_window(5)", ": call .key_by(…) before .tumbling_window(…)"), ("sums()", "")],
)
def test_a_call_that_needs_a_key_tells_of_key_by(script, tmp_path, call, hint):
    path = script(textwrap.dedent(ONE).replace(".map(", f".{call}.map("))

    with raises(PLUGIN_RAISED) as caught:
        extracted(path, tmp_path)

    assert caught.value.facts["hint"] == hint


def test_a_missing_module_is_told_in_few_lines_with_the_line_that_imports_it(script, tmp_path):
    path = script("import nowhere.inner\n" + textwrap.dedent(ONE))

    with raises(MISSING_DEPENDENCY) as caught:
        extracted(path, tmp_path)

    text = str(caught.value)
    assert caught.value.facts["location"] == f"{path}:1"
    assert "exec(compile" not in text
    assert "\\n" not in text
    assert "put nowhere.py or a folder nowhere next to my job.py" in text


def test_neighbors_that_are_too_large_are_refused(neighbors, tmp_path):
    with (tmp_path / "parts/table.txt").open("r+") as file:
        file.truncate((16 << 20) + 1)

    with raises(SCRIPT_UNUSABLE) as caught:
        pack_script(neighbors, cache_dir=tmp_path / "cache")

    assert "more than a job file may include" in caught.value.facts["problem"]


def test_a_file_is_sent_to_a_service_if_it_needs_no_other_file(script, neighbors):
    path = script(ONE, "alone.py")

    assert text_to_send(f"{path}:job") == Path(path).read_text()
    assert text_to_send("clicks") is None
    with raises(SCRIPT_UNUSABLE) as caught:
        text_to_send(neighbors)
    assert "a service receives only one file" in caught.value.facts["problem"]
    assert "--wheel" in caught.value.facts["hint"]
