import fcntl
import io
import os
import struct
import termios

import pytest

from bicycle_runtime.base.errors import ConfigError
from bicycle_runtime.cli.foreground import run_in_foreground, summary_lines
from bicycle_runtime.cli.live import LineWriter, LiveLine, Ticker, status_line
from bicycle_runtime.cli.rendering import show_table
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.options import JobOptions, JobRequest
from bicycle_runtime.jobs.running.summary import JobSummary, OutputSummary
from bicycle_runtime.jobs.status import JobState, JobStatus, PhaseStatus
from tests.waiting import until

CLEAR = "\r\x1b[2K"


def summary(**fields):
    defaults = {
        **{"id": "j", "job": "j", "plugin": "p", "plugin_version": "1", "state": "FINISHED"},
        **{"epoch": 4, "epoch_count": 4, "record_count": 2_000, "event_count": 9_000},
        **{"duration_ms": 4_000, "records_per_second": 500.0, "skipped_count": 0},
        **{"dead_letter_count": 0, "dead_letters": None, "dropped_count": 0, "state_bytes": 0},
        **{"was_aborted": False, "checkpoint": "cp/j", "resume_command": "bicycle run"},
        "outputs": (
            OutputSummary(operator="o", connector="jsonl_file", place="out", record_count=3),
        ),
    }
    return "\n".join(summary_lines(JobSummary(**{**defaults, **fields})))


def test_a_status_line_tells_epoch_rate_lag_state_and_watermark():
    status = JobStatus(
        id="j",
        job="j",
        plugin="p",
        state=JobState.RUNNING,
        running_ms=1,
        epoch=12,
        records_per_second=1_500.0,
        lag_bytes=2_048,
        state_bytes=3 << 20,
        watermark_ms=1_000,
    )

    line = status_line(status)
    for part in ("epoch 12", "1,500 records/s", "lag 2.0 KiB", "3.0 MiB", "1970-01-01T00:00:01Z"):
        assert part in line


def test_before_it_runs_a_job_shows_its_state_only():
    assert status_line(JobStatus(id="j", job="j", plugin="p")) == "j  created"


def test_while_a_job_stops_the_line_says_what_a_second_signal_does():
    status = JobStatus(id="j", job="j", plugin="p", state=JobState.STOPPING)

    assert status_line(status) == "j  stopping  (again: at once)"


def test_the_line_stays_below_what_is_written():
    terminal, records = io.StringIO(), io.StringIO()
    with LiveLine(terminal, is_shown=True) as live:
        live.show("epoch 1")
        live.write("a log line\n")
        live.above(records, "a record")

    assert records.getvalue() == "a record\n"
    assert terminal.getvalue() == (f"{CLEAR}epoch 1{CLEAR}a log line\nepoch 1{CLEAR}epoch 1{CLEAR}")


def test_a_line_is_cut_to_the_width_of_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "10")
    terminal = io.StringIO()
    LiveLine(terminal, is_shown=True).show("x" * 50)

    assert terminal.getvalue() == CLEAR + "x" * 9


def test_no_number_is_cut_in_the_middle(monkeypatch):
    monkeypatch.setenv("COLUMNS", "25")
    terminal = io.StringIO()
    live = LiveLine(terminal, is_shown=True)
    live.show("j  epoch 12  1,234,567 read  lag 3")
    live.show("j  epoch 12  11 records  x")
    live.show("j  epoch 12  11 records/s")

    shown = terminal.getvalue().split(CLEAR)[1:]
    assert shown == ["j  epoch 12", "j  epoch 12  11 records", "j  epoch 12"]


def test_the_width_is_that_of_the_terminal_that_is_written_to():
    ours, theirs = os.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 30, 0, 0))
    with open(theirs, "w") as terminal:  # noqa: PTH123 - a descriptor has no path.
        LiveLine(terminal, is_shown=True).show("x" * 50)

    assert os.read(ours, 1_000).decode() == CLEAR + "x" * 29
    os.close(ours)


def test_elsewhere_nothing_is_shown_and_all_is_passed_through():
    stream, records = io.StringIO(), io.StringIO()
    with LiveLine(stream, is_shown=False) as live:
        live.show("epoch 1")
        live.write("a log line\n")
        live.above(records, "a record")

    assert (stream.getvalue(), records.getvalue()) == ("a log line\n", "a record\n")


class ClosedPipe(io.StringIO):
    def write(self, text):
        raise BrokenPipeError


def test_a_reader_that_went_away_does_not_end_the_job():
    stream = io.StringIO()
    live = LiveLine(stream, is_shown=False)
    live.above(ClosedPipe(), "a record")
    live.above(stream, "another")

    assert stream.getvalue() == "another\n"


def test_what_follows_behind_a_reader_that_went_away_goes_nowhere_and_is_told_once(caplog):
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as records:  # noqa: PTH123 - a descriptor has no path.
        live = LiveLine(io.StringIO(), is_shown=False)
        for line in ("a record", "another"):
            live.above(records, line)
        records.write("the summary\n")

    assert [record.message for record in caplog.records] == ["reader_gone"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "read      2,000 records in 4 epochs, 4.0 s, 500 records/s"),
        ({}, "wrote     3 records to jsonl_file out"),
        ({}, "resume    bicycle run"),
        ({"record_count": 1, "epoch_count": 1}, "read      1 record in 1 epoch, 4.0 s"),
        ({"record_count": 0}, "nothing new to read; 9,000 records were read up to epoch 4"),
        ({"record_count": 0, "event_count": 0}, "the input is empty"),
        ({"skipped_count": 2}, "skipped   2 records"),
        ({"dead_letter_count": 1, "dead_letters": "cp/j/dead"}, "1 dead letter in cp/j/dead"),
        ({"dropped_count": 5}, "dropped   5 records"),
        ({"was_aborted": True}, "aborted"),
        ({"metrics": {"parse": {"counters": {"orders": 1_200}}}}, "metric    parse: orders 1,200"),
        ({"state_bytes": 2_048}, "epoch 4 in cp/j, 2.0 KiB of state"),
    ],
)
def test_a_summary_tells_what_matters(fields, words):
    assert words in summary(**fields)


def test_a_summary_is_silent_about_what_did_not_happen():
    assert not {"skipped", "letters", "dropped", "aborted"} & set(summary().split())


@pytest.fixture
def terminal(monkeypatch):
    def show(columns):
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)
        monkeypatch.setenv("COLUMNS", str(columns))

    return show


def test_a_narrow_terminal_does_without_some_columns_and_breaks_no_name(terminal, capsys):
    rows = [("a-job-of-a-long-name", "RUNNING", "123")]
    shown = []
    for columns in (80, 30, 10):
        terminal(columns)
        show_table(("job", "state", "pid"), rows, spare=("pid", "state"))
        shown.append(capsys.readouterr().out.splitlines()[1])

    assert shown == [
        "a-job-of-a-long-name  RUNNING  123",
        "a-job-of-a-long-name  RUNNING",
        "a-job-of-a-long-name",
    ]


def test_the_last_text_of_a_table_goes_on_below_itself(terminal, capsys):
    terminal(40)
    show_table(("plugin", "reason"), [("clicks", "two distributions have one plugin of this name")])

    assert capsys.readouterr().out.splitlines()[1:] == [
        "clicks  two distributions have one",
        "        plugin of this name",
    ]


def test_a_table_that_is_not_on_a_terminal_has_plain_columns(capsys):
    show_table(("name", "size"), [("a", "1"), ("longer", "22")])

    assert capsys.readouterr().out == "NAME    SIZE\na       1\nlonger  22\n"


def test_the_line_moves_while_nothing_is_told():
    status = JobStatus(id="j", job="j", plugin="p", state=JobState.RUNNING, started_ms=1_000)
    assert status_line(status, now_ms=66_900) == "j  running  1 min 5 s"
    status.phase = PhaseStatus(name="starting Spark", target="local", started_ms=60_000)
    assert "starting Spark (local) for 6.0 s" in status_line(status, now_ms=66_900)
    status.phase, status.epoch, status.epoch_began_ms = None, 4, 63_000
    assert "in epoch 5 for 3.0 s" in status_line(status, now_ms=66_900)
    status.reading_count = 81_920
    assert "in epoch 5 for 3.0 s, 81,920 read so far" in status_line(status, now_ms=66_900)
    status.epoch_began_ms = 66_000  # Short epochs are not worth a word.
    assert "in epoch" not in status_line(status, now_ms=66_900)


def test_a_ticker_shows_the_line_again_until_it_is_left(monkeypatch):
    monkeypatch.setattr("bicycle_runtime.cli.live._TICK_S", 0.01)
    terminal, numbers = io.StringIO(), iter(range(1_000_000))
    with (
        LiveLine(terminal, is_shown=True) as live,
        Ticker(lambda: f"line {next(numbers)}", live),
    ):
        until(lambda: "line 3" in terminal.getvalue(), "the line to move")


def test_what_workers_print_comes_above_the_line_whole():
    terminal = io.StringIO()
    with LiveLine(terminal, is_shown=True) as live:
        live.show("epoch 1")
        log = LineWriter(live)
        log.write(b"from a wor")
        assert "wor" not in terminal.getvalue()
        log.write(b"ker\nand more")
        assert terminal.getvalue() == f"{CLEAR}epoch 1{CLEAR}from a worker\nepoch 1"


def test_a_run_in_a_terminal_shows_a_line_from_its_beginning(monkeypatch, tmp_path):
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stderr", terminal)

    def run_job(request, home, services):
        services.listener(JobStatus(id="j", job="j", plugin="p", state=JobState.RUNNING))
        services.worker_log.write(b"from a worker\n")
        raise ConfigError(problem="that is all", hint="nothing")

    monkeypatch.setattr("bicycle_runtime.cli.foreground.run_job", run_job)
    request = JobRequest(options=JobOptions(plugin="p"))
    with pytest.raises(ConfigError):
        run_in_foreground(request, Home(tmp_path), as_json=False)
    assert "j  running" in terminal.getvalue()
    assert "from a worker\nj  running" in terminal.getvalue()
