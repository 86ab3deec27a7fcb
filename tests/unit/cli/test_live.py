import io
import logging
import os

import pytest

from bicycle_runtime.cli.foreground import run_in_foreground, summary_lines
from bicycle_runtime.cli.live import LiveStatus
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.options import JobOptions, JobRequest
from bicycle_runtime.jobs.running.summary import OutputSummary, RunSummary
from bicycle_runtime.jobs.status import JobState, JobStatus, PhaseStatus
from bicycle_sdk.clock import ManualClock
from bicycle_sdk.errors import ConfigError
from bicycle_streams.cli.rendering import write_line
from tests.unit.cli.screens import Terminal
from tests.unit.jobs.job_samples import status_line
from tests.waiting import until


def summary(**fields):
    defaults = {
        **{"id": "j", "job": "j", "plugin": "p", "plugin_version": "1", "state": "FINISHED"},
        **{"epoch": 4, "epoch_count": 4, "record_count": 2_000, "event_count": 9_000},
        **{"duration_ms": 4_000, "records_per_second": 500.0, "skipped_count": 0},
        **{"dead_letter_count": 0, "dead_letters": None, "dropped_count": 0, "state_bytes": 0},
        **{"was_aborted": False, "checkpoint": "cp/j", "resume_command": "bicycle run"},
        "outputs": (
            OutputSummary(operator="o", connector="jsonl_file", target="out", record_count=3),
        ),
    }
    return "\n".join(summary_lines(RunSummary(**{**defaults, **fields})))


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
    for part in ("epoch 12", "1,500 records/s", "lag 2 KiB", "3 MiB", "1970-01-01T00:00:01Z"):
        assert part in line


def test_before_it_runs_a_job_shows_its_state_only():
    assert status_line(JobStatus(id="j", job="j", plugin="p")) == "j  created"


def test_while_a_job_stops_the_line_says_what_a_second_signal_does():
    status = JobStatus(id="j", job="j", plugin="p", state=JobState.STOPPING)

    assert status_line(status) == "j  stopping  (press again to stop immediately)"


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    return Terminal(80)


def running(**fields):
    return JobStatus(id="j", job="j", plugin="p", **{"state": JobState.RUNNING, **fields})


def test_the_status_stays_below_what_is_written(terminal):
    records = io.StringIO()
    with LiveStatus(terminal, ManualClock(0)) as live:
        live.show(running())
        live.write(terminal, "a log line")
        live.write(records, "a record")
        until(lambda: terminal.shown() == ["a log line", "j  running"], "the status to come back")

    assert terminal.end() == ["a log line"]
    assert records.getvalue() == "a record\n"


def test_the_status_moves_while_nothing_is_told(terminal):
    clock = ManualClock(10_000)
    with LiveStatus(terminal, clock) as live:
        live.show(running(started_ms=1_000))
        until(lambda: terminal.shown() == ["j  running  9.0 s"], "the status to be shown")
        clock.advance(60_000)
        until(lambda: terminal.shown() == ["j  running  1 min 9 s"], "the status to move")


def test_a_long_status_goes_on_below_itself_and_leaves_nothing_behind(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    terminal = Terminal(40)
    with LiveStatus(terminal, ManualClock(0)) as live:
        live.show(running(running_ms=1, epoch=12, record_count=1_234_567))
        until(lambda: "1,234,567 read" in " ".join(terminal.shown()), "the status to be shown")
        assert len(terminal.shown()) > 1
        live.write(terminal, "a record\nand another")
        until(lambda: len(terminal.shown()) > 3, "the status to come back")

    assert terminal.end() == ["a record", "and another"]


def test_a_phase_whose_end_is_known_has_a_bar(terminal):
    phase = PhaseStatus(name="restoring", target="epoch 3", unit="files", done=5, total=10)
    with LiveStatus(terminal, ManualClock(0)) as live:
        live.show(running(phase=phase))
        until(lambda: len(terminal.shown()) == 2, "the bar to be shown")

        text, bar = terminal.shown()
        assert text == "j  running  restoring (epoch 3): 5 of 10 files"
        assert set(bar) <= set("━╸╺")


def test_the_cursor_is_not_hidden_as_a_job_that_is_killed_could_not_show_it_again(terminal):
    with LiveStatus(terminal, ManualClock(0)) as live:
        live.show(running())
        until(lambda: terminal.shown() == ["j  running"], "the status to be shown")

        assert b"\x1b[?25l" not in terminal.raw


class ClosedPipe(io.StringIO):
    def write(self, text):
        raise BrokenPipeError


def test_a_reader_that_went_away_does_not_end_the_job():
    stream = io.StringIO()
    write_line(ClosedPipe(), "a record")
    write_line(stream, "another")

    assert stream.getvalue() == "another\n"


def test_what_follows_behind_a_reader_that_went_away_goes_nowhere_and_is_told_once(caplog):
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as records:  # noqa: PTH123 - a descriptor has no path.
        for line in ("a record", "another"):
            write_line(records, line)
        records.write("the summary\n")

    assert [record.message for record in caplog.records] == ["reader_gone"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "read      2,000 records in 4 epochs, 4.0 s, 500 records/s"),
        ({}, "wrote     3 records to jsonl_file out"),
        ({}, "resume    bicycle run"),
        ({"record_count": 1, "epoch_count": 1}, "read      1 record in 1 epoch, 4.0 s"),
        ({"record_count": 0}, "no new input; epochs up to 4 read 9,000 records"),
        ({"record_count": 0, "event_count": 0}, "the input is empty"),
        ({"skipped_count": 2}, "skipped   2 records"),
        ({"dead_letter_count": 1, "dead_letters": "cp/j/dead"}, "1 dead letter in cp/j/dead"),
        ({"dropped_count": 5}, "dropped   5 records"),
        ({"was_aborted": True}, "aborted"),
        ({"metrics": {"parse": {"counters": {"orders": 1_200}}}}, "metric    parse: orders 1,200"),
        ({"state_bytes": 2_048}, "epoch 4 in cp/j, 2 KiB of state"),
    ],
)
def test_a_summary_tells_what_matters(fields, words):
    assert words in summary(**fields)


def test_a_summary_is_silent_about_what_did_not_happen():
    assert not {"skipped", "letters", "dropped", "aborted"} & set(summary().split())


def test_a_status_line_moves_while_nothing_is_told():
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


def test_what_workers_print_comes_above_the_status_whole(terminal):
    with LiveStatus(terminal, ManualClock(0)) as live:
        live.show(running())
        log = live.line_writer()
        log.write(b"from a wor")
        until(lambda: terminal.shown() == ["j  running"], "the status to be shown")
        log.write(b"ker\nand one\nand more")
        shown = ["from a worker", "and one", "j  running"]
        until(lambda: terminal.shown() == shown, "the lines to be shown")


def test_a_run_in_a_terminal_shows_its_status_from_the_beginning(monkeypatch, terminal, tmp_path):
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr("sys.stdout", terminal)

    def run_job(request, home, services, *, new_executor):
        services.listener(running())
        services.worker_log.write(b"from a worker\n")
        logging.getLogger("bicycle_runtime.test").warning("a warning")
        services.console("[SINK] a\n[SINK] b")
        until(lambda: terminal.shown()[-1:] == ["j  running"], "the status to be shown")
        raise ConfigError(problem="that is all", hint="nothing")

    monkeypatch.setattr("bicycle_runtime.cli.foreground.run_job", run_job)
    request = JobRequest(options=JobOptions(plugin="p"))
    with pytest.raises(ConfigError):
        run_in_foreground(request, Home(tmp_path), None, as_json=False)

    worker, warning, *records = terminal.end()
    assert worker == "from a worker"
    assert warning.endswith("WARNING a warning")
    assert records == ["[SINK] a", "[SINK] b"]


def test_a_run_that_is_piped_writes_log_lines_and_records_apart(monkeypatch, tmp_path, capsys):
    def run_job(request, home, services, *, new_executor):
        services.listener(running())
        assert services.worker_log is None
        logging.getLogger("bicycle_runtime.test").info("an event")
        services.console("[SINK] a")
        raise ConfigError(problem="that is all", hint="nothing")

    monkeypatch.setattr("bicycle_runtime.cli.foreground.run_job", run_job)
    request = JobRequest(options=JobOptions(plugin="p"))
    with pytest.raises(ConfigError):
        run_in_foreground(request, Home(tmp_path), None, as_json=False)

    out, err = capsys.readouterr()
    assert out == "[SINK] a\n"
    assert err.endswith("INFO  an event\n")
    assert "running" not in err
