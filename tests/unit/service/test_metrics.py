"""Figures for Prometheus: every name of the table, histograms, and what users count."""

from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bicycle_runtime.jobs.status import (
    GuaranteeStatus,
    OpenPublication,
    OperatorStatus,
    PhaseStatus,
    ShardLag,
    ShardStatus,
    WaitingOutput,
)
from bicycle_runtime.operators.metrics import Durations
from bicycle_runtime.service.metrics.figures import ServiceFigures
from bicycle_runtime.service.metrics.metrics import MetricsText
from bicycle_runtime.service.metrics.names import METRICS, SERVICE_METRICS
from bicycle_runtime.service.watching.fleet import Fleet
from bicycle_runtime.service.watching.paces import Paces
from bicycle_runtime.service.watching.states import State
from tests.unit.service.fleets import known

ENDS = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}


def times(*durations_ms):
    found = Durations()
    for duration_ms in durations_ms:
        found.take(round(duration_ms * 1e6))
    return found


def full_job(name="job"):
    """A job of which everything is known."""
    metrics = {
        "counters": {"a-b": 1, "a.b": 2},
        "gauges": {"depth": {"0": 1.5, "3": -2.0}},
        "histograms": {"size": {"count": 4, "sum": 10.0, "min": 1.0, "max": 4.0}},
    }
    operators = {
        "f": OperatorStatus(
            records_in=3, busy_ms=500.0, busy_share=0.25, times=times(0.3, 3, 30), metrics=metrics,
            skew=1.5, watermark_ms=500, state_bytes=70, state_growth=1.5,
            state_keys=12, backpressure=0.5, slowest_input="f/0",
        ),
        "out": OperatorStatus(records_in=3, times=times(7), bytes_out=900),
    }  # fmt: skip
    job = known(
        name, operators=operators, lags={"f": {"0": ShardLag(records=3, waiting_ms=20)}},
        lag_records=3, lag_bytes=70, watermark_ms=500, updated_ms=500, silent_sources={"f": 400},
        silent_storage_ms=300, guarantee=GuaranteeStatus(guarantee="at-least-once", weakest="out"),
        state_growth=-2.5, epoch_times=times(20, 2_000), phase_times={"run": times(20, 1_900)},
        ended_worker_count=4, epoch_began_ms=400, fixed_ms=900,
        publication=OpenPublication(epoch=3, sink="out", since_ms=300),
        waiting={"out": WaitingOutput(records=1, bytes=11)},
        shards={"f": {"0": ShardStatus(watermark_ms=500, event_ms=1_500)}},
        phase=PhaseStatus(name="loading state", unit="bytes", done=3, total=9, eta_ms=2_000),
    )  # fmt: skip
    return replace(job, paces=Paces(load=0.5))


def samples_of(*jobs):
    fleet = Fleet()
    fleet.publish(jobs, [], [], as_of_ms=1)
    text = MetricsText(fleet).text(now_ms=1_500)
    return [s for family in text_string_to_metric_families(text) for s in family.samples]


def value(samples, sample, /, **labels):
    [found] = [s.value for s in samples if s.name == sample and labels.items() <= s.labels.items()]
    return found


def names_of(metrics):
    return {m.name + end for m in metrics for end in ENDS.get(m.type, ("",))}


def test_each_name_of_the_table_is_told_of_a_job_of_which_all_is_known():
    assert {sample.name for sample in samples_of(full_job())} == names_of(METRICS)


def test_each_sample_has_the_labels_of_the_table():
    labels = {
        metric.name + end: {*metric.labels, *(["le"] if end == "_bucket" else [])}
        for metric in METRICS
        for end in ENDS.get(metric.type, ("",))
    }
    for sample in samples_of(full_job()):
        assert set(sample.labels) == labels[sample.name], sample


def test_the_names_of_the_service_are_those_of_its_table():
    figures = ServiceFigures()
    figures.count_request(200, 0.1)
    figures.count_spans("sent", 1)
    figures.note_disk(free_bytes=5, total_bytes=9)
    figures.note_slots([{"master": "local", "total": 4, "used": 1, "waiting_jobs": 0}])
    text = figures.text(look_ms=1.0, subscriber_count=0, operation_count=0)
    found = {s.name for f in text_string_to_metric_families(text) for s in f.samples}

    assert found == names_of(SERVICE_METRICS)


def test_no_series_is_told_twice_however_many_jobs_there_are():
    found = [(s.name, *sorted(s.labels.items())) for s in samples_of(full_job(), full_job("b"))]

    assert len(found) == len(set(found))


@pytest.mark.parametrize(("bound", "count"), [("0.0001", 0), ("0.0005", 1), ("0.05", 3)])
def test_a_bucket_counts_what_does_not_exceed_its_bound(bound, count):
    found = samples_of(full_job())

    name = "bicycle_operator_record_seconds_bucket"
    assert value(found, name, operator="f", le=bound) == count
    assert value(found, name, operator="f", le="+Inf") == 3


def test_a_histogram_has_all_its_buckets_from_the_first_record_on():
    one, more = (
        {
            s.labels["le"]
            for s in samples_of(known("a", epoch_times=found))
            if s.name == "bicycle_epoch_seconds_bucket"
        }
        for found in (times(1), times(0.001, 50, 10**7))
    )
    assert one == more


def test_what_exceeds_every_bound_is_in_the_last_bucket_only():
    found = samples_of(known("a", epoch_times=times(10**7)))

    assert value(found, "bicycle_epoch_seconds_bucket", le="300.0") == 0
    assert value(found, "bicycle_epoch_seconds_bucket", le="+Inf") == 1


def test_old_names_tell_sinks_from_operators():
    found = samples_of(full_job())

    assert value(found, "pulse_operator_process_latency_ms_count", operator="f") == 3
    assert value(found, "pulse_sink_process_latency_ms_bucket", operator="out", le="10.0") == 1
    assert value(found, "pulse_sink_process_latency_ms_sum", operator="out") == 7.0
    assert value(found, "pulse_bytes_written_total", sink="out") == 900


def test_counters_of_users_with_names_that_look_alike_stay_apart():
    found = samples_of(full_job())

    assert value(found, "bicycle_user_counter_total", name="a-b") == 1
    assert value(found, "bicycle_user_counter_total", name="a.b") == 2
    assert value(found, "bicycle_user_gauge", name="depth", subtask="3") == -2.0


def test_what_is_not_known_is_left_out():
    names = {sample.name for sample in samples_of(known("a", operators={"f": OperatorStatus()}))}

    assert not names & {
        "bicycle_operator_busy_ratio", "bicycle_operator_record_seconds_count",
        "bicycle_job_guarantee", "bicycle_job_state_growth_bytes_per_second",
        "pulse_bytes_written_total",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("state", "lag"),
    [("RUNNING", 3), ("FINISHED", 3), ("STOPPED", None), ("PAUSED", None), ("FAILED", None)],
)
def test_the_last_lag_of_an_ended_job_is_left_out(state, lag):
    lags = {"f": {"0": ShardLag(records=3, waiting_ms=400_000)}}
    job = known("a", state=State(state), lags=lags, lag_records=3, lag_bytes=70)
    found = {s.name: s.value for s in samples_of(job) if "lag" in s.name}

    assert found.get("bicycle_job_lag_records") == lag
    assert len(found) == (0 if lag is None else 4)
