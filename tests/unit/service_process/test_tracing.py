"""Spans of epochs, as a real receiver of OTLP over HTTP gets them."""

import signal
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.journal import EpochLine, LineJournal
from bicycle_runtime.service.errors import TRACING_EXTRA_MISSING
from bicycle_runtime.service.metrics.figures import ServiceFigures
from bicycle_runtime.service.tracing.receiver import is_receiver_configured
from bicycle_runtime.service.tracing.spans import SPANS_WAITING_MAX, Tracing
from bicycle_runtime.service.watching.fleet import Fleet
from bicycle_sdk.clock import ManualClock
from tests.raising import raises
from tests.unit.jobs.job_samples import put_job
from tests.unit.service.fleets import known
from tests.unit.service_process import light_process
from tests.unit.service_process.served import Served
from tests.waiting import PATIENCE_S, until

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


class Receiver(ThreadingHTTPServer):
    """Takes spans; ``code`` is what it answers, once ``is_open`` is set."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.spans = []
        self.code = 200
        self.is_open = threading.Event()
        self.is_open.set()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def named(self, name):
        return [span for span in list(self.spans) if span.name == name]


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        data = self.rfile.read(int(self.headers["content-length"]))
        self.server.is_open.wait(PATIENCE_S)
        assert self.path == "/v1/traces"
        request = ExportTraceServiceRequest.FromString(data)
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                self.server.spans += scope.spans
        self.send_response(self.server.code)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        """A test has no log."""


@pytest.fixture
def receiver(monkeypatch):
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv(ENDPOINT, server.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "2")
    yield server
    server.is_open.set()
    server.shutdown()
    thread.join()
    server.server_close()


def line(epoch, **fields):
    defaults = {"began_ms": 1_000 * epoch, "sealed_ms": 1_000 * epoch + 9, "records": 3}
    return EpochLine(epoch=epoch, **{**defaults, **fields})


@pytest.fixture
def traced(tmp_path):
    """A home with a job, whose journal is there, and tracing that is not yet entered."""
    home = Home(tmp_path / "home")
    put_job(home, "job")
    fleet, figures = Fleet(), ServiceFigures()
    fleet.publish((known("job"),), ["job"], [], as_of_ms=0)
    journal = LineJournal(home.folder("job").journal_path, job="job")
    tracing = Tracing(home, fleet, figures, clock=ManualClock(0))
    return tracing, journal, figures, fleet


def write(journal, *lines):
    for each in lines:
        journal.take(each, now_s=float(each.epoch))
    journal.flush()


def counts(figures):
    text = figures.text(look_ms=0, subscriber_count=0, operation_count=0)
    rows = [row for row in text.splitlines() if row.startswith("bicycle_service_spans_total{")]
    return {row.split('"')[1]: float(row.split()[-1]) for row in rows}


def test_an_epoch_is_a_span_with_its_phases_below_it(receiver, traced):
    tracing, journal, figures, _fleet = traced
    write(journal, line(1))  # Before the service came: told by the one before.
    phases = {"plan": 1.0, "run": 6.5, "publish_wait": 0.5, "seal": 1.0}

    with tracing:
        write(journal, line(2, phases_ms=phases, state_bytes=70))

    [epoch] = receiver.named("epoch")
    below = [span for span in receiver.spans if span.parent_span_id]
    facts = {a.key: a.value.string_value or a.value.int_value for a in epoch.attributes}
    assert facts["bicycle.job"] == "job"
    assert (facts["bicycle.epoch"], facts["bicycle.records"]) == (2, 3)
    assert facts["bicycle.state_bytes"] == 70
    assert (epoch.start_time_unix_nano, epoch.end_time_unix_nano) == (
        2_000_000_000, 2_009_000_000
    )  # fmt: skip
    assert [span.name for span in below] == list(phases)
    assert {span.parent_span_id for span in below} == {epoch.span_id}
    assert {span.trace_id for span in receiver.spans} == {epoch.trace_id}
    ends = [span.end_time_unix_nano for span in below]
    assert [span.start_time_unix_nano for span in below] == [2_000_000_000, *ends[:-1]]
    assert counts(figures) == {"sent": 5.0}


def test_a_job_that_came_later_is_told_from_its_first_epoch(receiver, traced, tmp_path):
    tracing, _journal, _figures, fleet = traced
    home = Home(tmp_path / "home")
    put_job(home, "new")
    with tracing:
        write(LineJournal(home.folder("new").journal_path, job="new"), line(1), line(2))
        fleet.publish((known("job"), known("new")), ["new"], [], as_of_ms=1)

    assert len(receiver.named("epoch")) == 2


def test_a_job_that_is_started_again_is_told_from_where_its_journal_was(receiver, traced):
    tracing, journal, _figures, fleet = traced
    with tracing:
        write(journal, line(1), line(2))
        until(lambda: len(receiver.named("epoch")) == 2, "the first run")
        fleet.publish((), [], ["job"], as_of_ms=1)  # It has no status while it is started.
        tracing.look()
        write(journal, line(3))
        fleet.publish((known("job"),), ["job"], [], as_of_ms=2)
        tracing.look()

    assert epochs_of(receiver) == [1, 2, 3]


def test_epochs_from_before_the_service_are_not_told_of_a_job_that_had_no_status_then(
    receiver, traced, tmp_path
):
    _tracing, _journal, figures, fleet = traced
    home = Home(tmp_path / "home")
    put_job(home, "new")
    journal = LineJournal(home.folder("new").journal_path, job="new")
    write(journal, line(1), line(2))
    with Tracing(home, fleet, figures, clock=ManualClock(2_500)):
        write(journal, line(3))
        fleet.publish((known("job"), known("new")), ["new"], [], as_of_ms=1)

    assert epochs_of(receiver) == [3]


def epochs_of(receiver):
    facts = [{a.key: a.value.int_value for a in s.attributes} for s in receiver.named("epoch")]
    return [each["bicycle.epoch"] for each in facts]


def test_a_receiver_that_refuses_costs_spans_which_are_counted(receiver, traced):
    tracing, journal, figures, _fleet = traced
    receiver.code = 400
    with tracing:
        write(journal, line(2))

    assert counts(figures) == {"failed": 1.0}


def test_a_receiver_that_hangs_costs_what_has_no_room(receiver, traced):
    tracing, journal, figures, _fleet = traced
    receiver.is_open.clear()
    with tracing:
        write(journal, *map(line, range(2, SPANS_WAITING_MAX + 1_000)))
        tracing.look()
        dropped = counts(figures)["dropped"]
        receiver.is_open.set()

    assert 0 < dropped < 1_000
    assert sum(counts(figures).values()) <= SPANS_WAITING_MAX + 998


def test_without_the_libraries_a_configured_receiver_is_an_error(monkeypatch):
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:4318")
    with raises(TRACING_EXTRA_MISSING):
        is_receiver_configured(["nothing.of.this.name"])
    assert is_receiver_configured()
    monkeypatch.delenv(ENDPOINT)
    assert not is_receiver_configured()


@pytest.mark.extended
def test_the_epochs_of_a_real_job_reach_a_receiver(receiver, tmp_path):
    process = light_process.start(tmp_path, "ada bob ada\n")
    served = Served(tmp_path / "home").start()
    try:
        until(lambda: served.get("/api/v1/jobs")["items"], "the job")
        with (tmp_path / "in.txt").open("a") as words:
            words.write("eve\n")
        until(lambda: receiver.named("epoch"), "a span")
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)
        until(lambda: receiver.named("seal"), "the phases")
    finally:
        process.kill()
        process.wait(PATIENCE_S)
        served.end(signal.SIGTERM)

    names = Counter(span.name for span in receiver.spans)
    assert names["epoch"] == names["run"] == names["seal"]
