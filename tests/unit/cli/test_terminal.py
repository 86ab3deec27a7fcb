"""What a person sees: commands in a terminal, narrow and wide, with colours and without."""

import re
import subprocess
import sys

import pytest

from bicycle_runtime.jobs.status import JobState, OperatorStatus
from bicycle_streams.cli.rendering import show_table, show_text
from tests.unit.cli.screens import COMMAND, Terminal, see

JOB = "clicks-with-a-long-name"


# `bicycle run` with tasks in this process in place of Spark.
LIGHT = """
import sys
from functools import partial
from bicycle_runtime.cli import foreground, main
from tests.unit.jobs.running.light_jobs import LightExecutor
foreground.run_job = partial(foreground.run_job, new_executor=lambda *_: LightExecutor([]))
main(sys.argv[1:], "bicycle")
"""
CLICKS = """
from bicycle_sdk import StreamEnvironment, bicycle_plugin

@bicycle_plugin
def clicks(env: StreamEnvironment) -> None:
    env.from_collection(["ada", "bob"]).map(shown).print()

def shown(name: str) -> str:
    print("shown", name)
    return name
"""


@pytest.fixture
def jobs(shell):
    late = OperatorStatus(records_in=9, late=2, watermark_ms=1_000, slowest_input="clicks: b.csv")
    shell.put_job(
        JOB, state=JobState.FAILED, plugin="clicks", plugin_version="2.1.0", epoch=3,
        record_count=1_234, operators={"count": late},
    )  # fmt: skip
    return shell


@pytest.fixture
def terminal(monkeypatch):
    """Make standard output a terminal of so many columns."""

    def open_terminal(columns):
        terminal = Terminal(columns)
        monkeypatch.setattr("sys.stdout", terminal)
        monkeypatch.setenv("COLUMNS", str(columns))
        return terminal

    return open_terminal


def test_a_list_is_a_table_with_a_line_below_its_headings(jobs):
    heading, line, row = see("list", columns=100).shown()

    assert heading.split() == [
        "JOB", "STATE", "PLUGIN", "EPOCH", "RECORDS", "RECORDS/S", "STARTED", "PID",
    ]  # fmt: skip
    assert set(line) == {"─"}
    assert row.split() == [
        JOB,
        "FAILED",
        "clicks",
        "2.1.0",
        "3",
        "1,234",
        "1970-01-01",
        "00:00:00Z",
    ]


def test_a_list_in_forty_columns_keeps_name_state_and_count(jobs):
    heading, _, row = see("list", columns=40).shown()

    assert heading.split() == ["JOB", "STATE", "RECORDS"]
    assert row.split() == [JOB, "FAILED", "1,234"]


def test_a_run_shows_its_status_while_it_lasts_then_records_and_a_summary(shell, tmp_path):
    (tmp_path / "clicks.py").write_text(CLICKS)
    words = ("run", str(tmp_path / "clicks.py"), "--checkpoint-dir", str(tmp_path / "cp"))
    terminal = see(*words, columns=150, code=LIGHT)

    # Which states are drawn depends on how fast the job is: it is drawn four times a second.
    assert re.search(
        rb"\x1b\[1mclicks\x1b\[0m  \x1b\[3[23]m(created|running|finished)", terminal.raw
    )
    lines = terminal.shown()
    assert {"shown ada", "shown bob", "[SINK] ada", "[SINK] bob"} < set(lines)
    place = next(place for place, line in enumerate(lines) if line.startswith("job clicks ("))
    assert lines[place].endswith(": FINISHED")
    assert lines[place + 1].startswith("  read      2 records in ")
    assert not [line for line in lines if "  lag " in line or line.startswith("clicks  ")]


def test_colours_are_left_out_where_nobody_wants_or_can_see_them(jobs):
    assert b"\x1b[1;31mFAILED" in see("list").raw
    assert b"31m" not in see("list", NO_COLOR="1").raw
    assert b"\x1b[" not in see("list", TERM="dumb").raw


def test_a_terminal_that_is_not_unicode_gets_letters_that_it_has(jobs):
    terminal = see("list", PYTHONIOENCODING="ascii")

    assert terminal.raw.isascii()
    assert JOB in terminal.shown()[2]


def test_details_go_on_below_themselves(jobs):
    lines = see("status", JOB, columns=40).shown()

    assert lines[0] == f"job {JOB}"
    place = lines.index("  operator   count: 9 in, 0 out, 2 late,")
    assert lines[place + 1 : place + 4] == [
        "             watermark",
        "             1970-01-01T00:00:01Z",
        "             (limited by clicks: b.csv)",
    ]


def test_an_error_has_its_code_first_and_its_fix_last_each_below_itself(terminal):
    screen = terminal(40)
    show_text("error: BIC-1902 no job is called 'nobody'; known: clicks\n  fix: see `bicycle list`")

    assert b"\x1b[1;31merror:\x1b[0m \x1b[1mBIC-1902" in see("status", "nobody").raw
    assert screen.end() == [
        "error: BIC-1902 no job is called",
        "       'nobody'; known: clicks",
        "  fix: see `bicycle list`",
    ]


def test_what_is_piped_is_plain_and_never_broken_and_loads_no_rich(jobs):
    code = f"{COMMAND.replace('main(sys', 'import atexit; atexit.register(told); main(sys')}"
    code = f"def told(): print('rich' in sys.modules)\n{code}"
    for words in (["list"], ["status", JOB], ["--help"], ["--version"], ["doctor"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *words],
            env={**jobs.environment, "COLUMNS": "20", "FORCE_COLOR": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        *lines, loaded = done.stdout.splitlines()
        assert loaded == "False", words
        assert "\x1b" not in done.stdout
    assert not done.stderr
    assert lines[0].startswith("ok    Python: ")


def test_a_line_to_paste_and_a_word_that_does_not_fit_are_left_whole(terminal):
    screen = terminal(40)
    command = "bicycle run --plugin click --set count=12"
    path = "/a/folder/" + "x" * 40
    show_text(f"  resume    {command}\n  state     epoch 4 in {path}")

    assert "".join(screen.end()) == f"  resume    {command}  state     epoch 4 in {path}"


def test_a_narrow_terminal_does_without_some_columns_and_breaks_no_name(terminal):
    rows = [("a-job-of-a-long-name", "RUNNING", "123")]
    shown = []
    for columns in (80, 30, 22):
        screen = terminal(columns)
        show_table(("job", "state", "pid"), rows, spare=("pid", "state"))
        shown.append(screen.end()[2])

    assert shown == [
        "a-job-of-a-long-name  RUNNING  123",
        "a-job-of-a-long-name  RUNNING",
        "a-job-of-a-long-name",
    ]


def test_rows_come_one_below_the_other_where_no_table_fits(terminal):
    screen = terminal(20)
    show_table(("savepoint", "epoch", "size"), [("before-up", "7", ""), ("b", "8", "1,234 KiB")])

    assert screen.end() == [
        "savepoint  before-up", "epoch      7", "",
        "savepoint  b", "epoch      8", "size       1,234 KiB",
    ]  # fmt: skip


def test_the_last_text_of_a_table_goes_on_below_itself(terminal):
    screen = terminal(40)
    show_table(("plugin", "reason"), [("clicks", "two distributions have one plugin of this name")])

    assert screen.end()[2:] == ["clicks  two distributions have one", "        plugin of this name"]


def test_a_table_that_is_not_on_a_terminal_has_plain_columns(capsys):
    show_table(("name", "size"), [("a", "1"), ("longer", "22")])

    assert capsys.readouterr().out == "NAME    SIZE\na       1\nlonger  22\n"


def test_data_keeps_the_names_and_types_of_its_columns_and_is_aligned_by_type(terminal):
    rows = [("7", "FAILED"), ("-12", "ok")]
    screen = terminal(40)
    show_table(("n\nBIGINT", "State\nVARCHAR"), rows, are_numbers=(True, False))

    shown = screen.end()
    assert [line for line in shown if "─" not in line] == [
        "     n  State",
        "BIGINT  VARCHAR",
        "     7  FAILED",
        "   -12  ok",
    ]
    assert b"31m" not in screen.raw


def test_data_that_is_too_wide_comes_one_row_below_the_other_without_types(terminal):
    screen = terminal(12)
    show_table(("n\nBIGINT", "who\nVARCHAR"), [("1", "ada")], are_numbers=(True, False))

    assert screen.end() == ["n    1", "who  ada"]
