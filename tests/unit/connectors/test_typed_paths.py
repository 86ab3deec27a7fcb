"""Paths as people type them."""

import pytest

from bicycle_runtime.connectors.errors import CONNECTOR_OPTION_WRONG
from bicycle_runtime.connectors.registry import create_sink, create_source
from bicycle_runtime.contract import ConnectorSpec
from bicycle_runtime.testing.connectors.running import SourceRun, services_in, values_of
from tests.raising import raises


def spec(path, word="text"):
    return ConnectorSpec(vertex_id="v", connector_type=word, properties={"path": path})


def read(tmp_path, path):
    run = SourceRun(spec(path), services_in(tmp_path)).start()
    found = values_of(run.drain())
    run.stop()
    return found


def test_a_tilde_is_the_home_wherever_the_shell_left_it(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "in.txt").write_text("line\n")

    assert read(tmp_path, "~/in.txt") == ["line"]


def test_a_name_may_begin_with_a_tilde(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "~no-such-user").write_text("line\n")

    assert read(tmp_path, "~no-such-user") == ["line"]


def test_only_what_was_typed_is_a_pattern(tmp_path, monkeypatch):
    folder = tmp_path / "my [old] files"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "a.txt").write_text("line\n")

    assert read(tmp_path, "*.txt") == ["line"]


@pytest.mark.parametrize("path", ["", " "])
@pytest.mark.parametrize(("make", "word"), [(create_source, "text"), (create_sink, "jsonl_file")])
def test_an_empty_path_is_refused(make, word, path):
    with raises(CONNECTOR_OPTION_WRONG) as refused:
        make(spec(path, word))

    assert refused.value.facts["name"] == "path"
