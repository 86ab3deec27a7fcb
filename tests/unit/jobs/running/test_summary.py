from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.cli.foreground import summary_lines
from bicycle_runtime.engine.planning.setup import prepare_job
from bicycle_runtime.jobs.home import JobFolder, JobLocation
from bicycle_runtime.jobs.running.summary import summarize
from bicycle_runtime.jobs.status import JobState, OperatorStatus, WaitingOutput
from bicycle_runtime.operators.metrics import FailureCount
from bicycle_sdk import dead_letter, file_sink, skip
from bicycle_sdk.kafka import KafkaSinkBuilder
from tests.unit.jobs.job_samples import bundle_of, request_of, status_of


def build(env):
    numbers = env.read_text("in").uid("lines").map(int).uid("parse").on_error(skip())
    halves = numbers.map(float).uid("halve").on_error(dead_letter())
    halves.sink_to(file_sink("out")).uid("files")
    halves.print().uid("screen")
    halves.map(str).uid("texts").sink_to(KafkaSinkBuilder("127.0.0.1:1", "halves")).uid("topic")


def summary_of(tmp_path, *, job=build, request=None, **fields):
    storage = LocalStorage(str(tmp_path / "cp/job"))
    location = JobLocation(
        job="job", checkpoint_dir=str(tmp_path / "cp"), storage=storage, folder=JobFolder(tmp_path)
    )
    setup = prepare_job(bundle_of(job), job_id="job", storage=storage)
    status = status_of("job", **fields)
    return summarize(
        status, setup, location=location, request=request or request_of(), was_aborted=False
    )


def test_it_tells_what_was_written_and_what_was_lost(tmp_path):
    operators = {
        "parse": OperatorStatus(records_in=9, failed=2),
        "halve": OperatorStatus(records_in=7, failed=3),
        "files": OperatorStatus(records_in=5, failed=1),
    }
    summary = summary_of(tmp_path, operators=operators, dropped_count=1)

    outputs = {item.operator: item for item in summary.outputs}
    assert (outputs["files"].target, outputs["files"].record_count) == ("out", 4)
    assert outputs["screen"].record_count == 0
    assert outputs["topic"].target == "halves"
    assert (summary.skipped_count, summary.dead_letter_count) == (2, 3)
    assert summary.dead_letters == f"{tmp_path}/cp/job/dead_letters"
    assert summary.dropped_count == 1


def test_failures_have_a_line_for_each_exception_with_count_place_and_example(tmp_path):
    failures = {
        "KeyError at job.py:3 in parse": FailureCount(count=1, example="KeyError: 'a' (record 7)"),
        "ValueError at job.py:9 in half": FailureCount(count=2, example="ValueError: b (record 2)"),
    }
    operators = {"parse": OperatorStatus(records_in=9, records_out=6, failed=3, failures=failures)}
    summary = summary_of(tmp_path, operators=operators)

    assert summary.failures == (
        "2 records of 'parse': ValueError at job.py:9 in half, such as ValueError: b (record 2)",
        "1 record of 'parse': KeyError at job.py:3 in parse, such as KeyError: 'a' (record 7)",
    )
    assert summary.warnings == ()
    assert any(summary.failures[0] in line for line in summary_lines(summary))


def test_a_job_whose_every_record_fails_says_so(tmp_path):
    operators = {"parse": OperatorStatus(records_in=3, failed=3)}
    (warning,) = summary_of(tmp_path, operators=operators).warnings

    assert warning.startswith("EVERY RECORD FAILED: 'parse' emitted no records")


def test_late_records_that_nobody_takes_are_a_warning(tmp_path):
    operators = {"halve": OperatorStatus(records_in=7, late=3), "parse": OperatorStatus()}
    summary = summary_of(tmp_path, operators=operators)

    assert summary.late_count == 3
    assert ["halve" in warning for warning in summary.warnings] == [True]
    assert summary_of(tmp_path).warnings == ()


def join_with_a_limit(env):
    left, right = (env.from_collection(["a"]).assign_timestamps(len).key_by(str) for _ in range(2))
    left.interval_join(right, 0, 1, max, max_buffered=5).uid("join").print()


def test_rows_that_a_join_evicted_are_a_warning(tmp_path):
    counted = {"counters": {"evicted_rows": 7}}
    for found, expected in ((counted, 1), ({}, 0)):
        operators = {"join": OperatorStatus(records_in=9, metrics=found)}
        warnings = summary_of(tmp_path, job=join_with_a_limit, operators=operators).warnings
        assert len(warnings) == expected
        assert all("'join' evicted 7 rows" in warning for warning in warnings)


def test_records_for_a_side_output_that_nobody_reads_are_a_warning(tmp_path):
    operators = {"halve": OperatorStatus(records_in=7, unread={"odd": 4, "huge": 1})}
    odd, huge = summary_of(tmp_path, operators=operators).warnings

    assert odd.startswith("'halve' sent 4 records to the side output 'odd'")
    assert huge.startswith("'halve' sent 1 record to the side output 'huge'")


def test_a_call_that_kept_the_event_loop_is_a_warning_with_its_line(tmp_path):
    found = OperatorStatus(blocked=2, blocked_ms=1_200, blocked_at="halves.py:7 in fetch")
    (warning,) = summary_of(tmp_path, operators={"halve": found}).warnings

    assert all(word in warning for word in ("'halve'", "halves.py:7 in fetch", "1.2 s"))


def test_records_that_timed_out_without_a_fallback_are_a_warning(tmp_path):
    found = OperatorStatus(timed_out=3)
    (warning,) = summary_of(tmp_path, operators={"halve": found}).warnings

    assert "'halve' omitted 3 records" in warning


def test_what_is_sealed_and_not_visible_is_told(tmp_path):
    waiting = {"files": WaitingOutput(records=1_200, bytes=4_096, visible_ms=1)}
    lines = summary_lines(summary_of(tmp_path, waiting=waiting))
    before = summary_lines(summary_of(tmp_path))

    told = "  sealed    files: 1,200 records, 4 KiB, visible when the job runs again"
    assert [line for line in lines if line not in before] == [told]


def test_without_dead_letters_no_place_is_named(tmp_path):
    assert summary_of(tmp_path).dead_letters is None


def test_the_rate_counts_from_the_first_moment_of_running(tmp_path):
    times = {"started_ms": 0, "running_ms": 5_000, "ended_ms": 7_000}
    summary = summary_of(tmp_path, record_count=100, state=JobState.FINISHED, **times)

    assert (summary.duration_ms, summary.records_per_second) == (2_000, 50.0)
    assert summary.state == "FINISHED"
    assert summary.has_read


def test_the_command_to_resume_names_job_and_place_unless_the_same_words_do(tmp_path):
    named = summary_of(tmp_path, request=request_of({"input": "a b"}))
    same = summary_of(tmp_path, request=request_of(checkpoint_dir="cp"))

    assert named.resume_command == (
        f"bicycle run --plugin sample --name job --checkpoint-dir {tmp_path}/cp --set 'input=a b'"
    )
    assert same.resume_command == "bicycle run --plugin sample --checkpoint-dir cp"
