"""Work of a service that takes long: the command shows for how long it has waited."""

import pytest

from bicycle_runtime.cli import remote
from bicycle_runtime.cli.remote import progress
from tests.waiting import until


def test_work_that_takes_long_is_shown_with_its_time(capsys, monkeypatch):
    for name in ("_FIRST_PROGRESS_S", "_PROGRESS_S"):
        monkeypatch.setattr(remote, name, 0.01)
    shown = ""

    def lines():
        nonlocal shown
        shown += capsys.readouterr().err
        return shown.count("\n") >= 2

    with progress("submit of words"):
        until(lines, "two lines")

    assert all(line.startswith("submit of words: ") for line in shown.splitlines())
    assert all(line.endswith(" so far") for line in shown.splitlines())


def test_quick_work_shows_nothing_and_passes_errors_on(capsys):
    with pytest.raises(ZeroDivisionError), progress("upload"):
        _ = 1 / 0

    assert capsys.readouterr().err == ""
