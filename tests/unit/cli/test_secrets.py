"""Secrets on the command line are asked for and kept nowhere, and job folders are the owner's."""

import os
import stat

import click
import pytest
from click.testing import CliRunner

from bicycle_runtime.base.files import own_folder, replace_file
from bicycle_runtime.cli.parameters import set_option
from bicycle_runtime.jobs.options import JobOptions, JobRequest


@click.command()
@set_option
def show(params):
    click.echo(repr(params))


@pytest.fixture
def clean(monkeypatch):
    monkeypatch.setenv("BICYCLE_SECRET_DB_PASSWORD", "")  # So that it is put back.


@pytest.mark.usefixtures("clean")
def test_a_prompt_asks_without_an_echo_and_hands_on_a_reference():
    words = ["--set", "db-password=prompt:", "--set", "name=prompt"]
    done = CliRunner().invoke(show, words, input="hunter2\n")

    assert done.exit_code == 0
    assert done.stdout == "{'db-password': 'env:BICYCLE_SECRET_DB_PASSWORD', 'name': 'prompt'}\n"
    assert "hunter2" not in done.output
    assert os.environ["BICYCLE_SECRET_DB_PASSWORD"] == "hunter2"


def test_the_command_that_goes_on_asks_again():
    params = {"password": "env:BICYCLE_SECRET_PASSWORD", "other": "env:OTHER"}
    request = JobRequest(options=JobOptions(plugin="p"), params=params)

    words = request.command_words("run")
    assert words[-4:] == ["--set", "password=prompt:", "--set", "other=env:OTHER"]


def test_requests_status_and_their_folders_are_for_their_owner_only(shell):
    before = os.umask(0)
    try:
        shell.home.prepare()
        (shell.home.path / "jobs").chmod(0o755)  # As earlier versions made it.
        shell.home.prepare()
        shell.put_job("shop")
        folder = shell.home.folder("shop")
        folder.path.chmod(0o755)
        folder.write_request(folder.read_request())
    finally:
        os.umask(before)
    modes = {
        path: stat.S_IMODE(path.stat().st_mode)
        for path in (shell.home.path / "jobs", folder.path, folder.request_path, folder.status_path)
    }
    assert list(modes.values()) == [0o700, 0o700, 0o600, 0o600]


def test_a_file_that_is_replaced_is_for_its_owner_only_whatever_it_was(tmp_path):
    path = tmp_path / "folder" / "file"
    own_folder(path.parent)
    path.write_bytes(b"before")
    path.chmod(0o644)
    (path.parent / f".file-{os.getpid()}").write_bytes(b"what a crash left")
    replace_file(path, b"after")

    assert path.read_bytes() == b"after"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["file"]
