"""What `bicycle replay` refuses before anything runs, and how it shows a report."""

import signal

import pytest

from bicycle_runtime.cli import main, replay
from bicycle_runtime.cli.replay import _show

REPORT = {
    "epoch": 7,
    "url": "/ck/job",
    "was_sealed": True,
    "former_error": None,
    "is_same_plugin": True,
    "now_ms": 1,
    "key": None,
    "operators": [
        {"operator": "sums", "records_in": 1200, "records_out": 3, "failed": 0, "late": 0}
    ],
    "sinks": [{"sink": "out", "record_count": 3, "records": ["('ada', 1)"]}],
    "states": [
        {
            "operator": "sums", "added": 1, "removed": 0, "changed": 2,
            "changes": [
                {"change": "added", "state": "accumulator", "key": "ada", "part": None,
                 "before": None, "after": 1},
            ],
        }
    ],
    "differences": [],
    "error": None,
}  # fmt: skip


def shown(capsys, **fields):
    _show({**REPORT, **fields})
    captured = capsys.readouterr()
    return captured.out + captured.err


@pytest.mark.parametrize("epoch", ["0", "-1", "last", "1.5"])
def test_an_epoch_is_a_number_or_next(shell, epoch):
    code, error = shell.error("replay", "job", "--epoch", epoch)
    assert (code, error["code"]) == (2, "BIC-2001")


def test_a_job_that_nobody_knows_is_refused_and_ctrl_c_works_as_before(shell):
    before = signal.getsignal(signal.SIGINT)
    code, error = shell.error("replay", "nobody", "--epoch", "next")
    assert (code, error["code"]) == (2, "BIC-1902")
    assert signal.getsignal(signal.SIGINT) is before


def test_without_an_epoch_the_next_one_is_meant(shell, monkeypatch):
    asked = []

    def replayed(request, _home, *, is_quiet):
        asked.append((request.epoch, is_quiet))
        return REPORT

    monkeypatch.setattr("bicycle_runtime.jobs.replay.epochs.replay", replayed)

    assert shell.answer("replay", "job") == REPORT
    assert asked == [("next", True)]


def test_people_see_counts_records_and_changes(capsys):
    text = shown(capsys)
    for part in ("epoch 7 of /ck/job (sealed)", "1,200", "('ada', 1)", "1 added", "ada"):
        assert part in text
    assert "the result equals the sealed result" in text


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"differences": ["operator 'sums': 2 entries"]}, "differs: operator 'sums': 2 entries"),
        ({"is_same_plugin": False}, "has changed"),
        ({"key": "ada"}, "only the key ada"),
        ({"was_sealed": False}, "does not fail now"),
        (
            {"error": {"code": "BIC-1401", "message": "m", "fix": "f", "facts": {}}},
            "error: BIC-",
        ),
    ],
)
def test_people_see_what_is_special(capsys, fields, part):
    assert part in shown(capsys, **fields)


def test_a_debugger_that_was_left_is_told(capsys):
    _show({"left": True, "epoch": 7})
    assert "was quit" in capsys.readouterr().out


def test_the_command_is_listed():
    assert main.commands["replay"] is replay.replay_command
