"""Which jobs read on behind their slices, and how far an epoch does."""

import pytest

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.contract import Lag, ReadOn, SourceStatus
from bicycle_runtime.engine.epoch.watermarks import Timeline
from bicycle_runtime.engine.loop.intake import Intake, reads_on
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.engine.planning.setup import prepare_job
from bicycle_runtime.testing import bundle_of
from bicycle_sdk import (
    DeliveryGuarantee,
    KafkaSinkBuilder,
    KafkaSourceBuilder,
    StreamEnvironment,
    dead_letter,
)
from bicycle_sdk.clock import ManualClock

BROKERS = "127.0.0.1:1"
AT_ONCE = {"has_input": True, "is_finished": False, "waiting_shards": frozenset({"t/0"})}


def prepared(build, folder, parallelism=2):
    env = StreamEnvironment()
    build(env)
    storage = LocalStorage(str(folder), is_synced=False)
    return prepare_job(bundle_of(env), job_id="job", storage=storage, parallelism=parallelism)


def texts(env, topic="in"):
    return env.add_source(KafkaSourceBuilder[str](BROKERS, topic)).uid(topic)


def sink(topic="out", guarantee=DeliveryGuarantee.AT_LEAST_ONCE):
    return KafkaSinkBuilder[str](BROKERS, topic).delivery_guarantee(guarantee).build_connector()


def relay(env):
    texts(env).map(str.upper).sink_to(sink())


def two_branches(env):
    read = texts(env).on_error(dead_letter())
    read.filter(bool).sink_to(sink())
    read.map(str.upper).sink_to(sink("other"))


def exactly_once(env):
    texts(env).sink_to(sink(guarantee=DeliveryGuarantee.EXACTLY_ONCE))


def one_of_two_sinks_publishes(env):
    read = texts(env)
    read.sink_to(sink())
    read.sink_to(sink("other", DeliveryGuarantee.EXACTLY_ONCE))


def keyed(env):
    texts(env).key_by(str).count().map(str).sink_to(sink())


def two_sources(env):
    texts(env).union(texts(env, "more")).sink_to(sink())


def many_in_one_call(env):
    texts(env).map_batches(list).sink_to(sink())


def limited(env):
    texts(env).rate_limit(5).sink_to(sink())


def of_another_source(env):
    env.from_collection(["a"]).sink_to(sink())


@pytest.mark.parametrize("build", [relay, two_branches])
def test_a_stage_whose_results_are_visible_at_once_reads_on(build, tmp_path):
    assert reads_on(prepared(build, tmp_path))


@pytest.mark.parametrize(
    "build",
    [
        exactly_once, one_of_two_sinks_publishes, keyed, two_sources, many_in_one_call, limited,
        of_another_source,
    ],
)  # fmt: skip
def test_a_job_whose_results_wait_for_the_end_of_the_epoch_does_not(build, tmp_path):
    assert not reads_on(prepared(build, tmp_path))


def planned(setup, status, *, slots=2, **options):
    """Return how far an epoch reads on."""
    settings = EngineOptions(**options)
    found = Intake(setup, Timeline(setup.plan, ManualClock(), is_batch=False), settings)
    found.slots = slots
    return found.how_far({"in": status})


def test_an_epoch_reads_on_for_its_time_and_within_its_limits(tmp_path):
    status = SourceStatus(**AT_ONCE, lag=Lag(record_count=5))

    limits = {"max_records_per_epoch": 40, "max_bytes_per_epoch": 4_000}
    found = planned(prepared(relay, tmp_path), status, epoch_target_ms=700, **limits)

    assert found == ReadOn(duration_ms=1_400, record_count=10, byte_count=1_000)


@pytest.mark.parametrize(
    ("status", "slots"),
    [
        ({}, 1),  # Tasks that wait for others would wait for its end.
        ({}, 0),
        ({"lag": Lag(record_count=9_000)}, 2),
        ({"lag": Lag()}, 2),
        ({"is_bounded": True}, 2),
        ({"waiting_shards": frozenset()}, 2),
        ({"has_input": False}, 2),
    ],
)
def test_an_epoch_does_not_where_others_would_wait(tmp_path, status, slots):
    given = SourceStatus(**{**AT_ONCE, "lag": Lag(record_count=5), **status})

    assert planned(prepared(relay, tmp_path), given, slots=slots) is None
