import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.jobs.options import JobOptions, JobRequest, options_of_new_job
from bicycle_sdk.errors import OptionError, UnknownOptionError
from tests.unit.jobs.job_samples import bundle_of, request_of

TEXTS = st.dictionaries(st.text(min_size=1, max_size=5), st.text(max_size=5), max_size=3)


@given(
    parallelism=st.none() | st.integers(1, 32_768),
    follow=st.booleans(),
    params=TEXTS,
    spark=TEXTS,
    engine=st.sampled_from([{}, {"retained_epochs": "5"}, {"epoch_target_ms": "2s"}]),
)
def test_a_request_survives_json(parallelism, follow, params, spark, engine):
    options = JobOptions(plugin="p", parallelism=parallelism, follow=follow, name="n")
    request = JobRequest(options=options, params=params, engine=engine, spark=spark)

    assert JobRequest.from_json(request.to_json()) == request


def test_the_command_line_holds_what_differs_from_the_defaults():
    request = JobRequest(
        options=JobOptions(plugin="p", follow=True, parallelism=2),
        params={"input": "a b"},
        engine={"retained_epochs": "5"},
        spark={"spark.x": "1"},
    )

    assert request.command_words("run", name="n") == [
        *("bicycle", "run", "--plugin", "p", "--name", "n", "--parallelism", "2", "--follow"),
        *("--retained-epochs", "5", "--set", "input=a b", "--conf", "spark.x=1"),
    ]


def test_a_wrong_option_of_the_engine_is_refused_at_once():
    with pytest.raises(OptionError) as caught:
        JobRequest(options=JobOptions(plugin="p"), engine={"retained_epochs": "1"})
    assert caught.value.facts["name"] == "retained_epochs"

    with pytest.raises(UnknownOptionError):
        JobRequest(options=JobOptions(plugin="p"), engine={"retained": "5"})


def test_parallelism_has_bounds():
    with pytest.raises(OptionError):
        request_of(parallelism=0)


def test_the_mode_of_the_graph_counts_unless_another_one_is_given():
    bundle = bundle_of(lambda env: env.set_runtime_mode("batch").from_collection([1]).print())
    given_one = JobRequest(options=JobOptions(plugin="p"), engine={"mode": "streaming"})

    assert request_of().engine_options(bundle.graph).is_batch
    assert not given_one.engine_options(bundle.graph).is_batch
    with pytest.raises(OptionError):
        JobRequest(options=JobOptions(plugin="p"), engine={"mode": "fast"})


def test_the_checkpoint_interval_of_the_graph_counts_unless_another_one_is_given():
    bundle = bundle_of(lambda env: env.set_checkpoint_interval(5_000).from_collection([1]).print())
    given_one = JobRequest(options=JobOptions(plugin="p"), engine={"checkpoint_interval_ms": "7s"})

    assert request_of().engine_options(bundle.graph).checkpoint_interval_ms == 5_000
    assert given_one.engine_options(bundle.graph).checkpoint_interval_ms == 7_000
    assert request_of().engine_options(bundle.graph).retained_epochs == (
        EngineOptions().retained_epochs
    )


def test_the_environment_sets_the_checkpoint_directory_of_new_jobs_without_one(monkeypatch):
    for value, expected in ((None, None), ("", None), ("s3://bucket/jobs", "s3://bucket/jobs")):
        if value is None:
            monkeypatch.delenv("BICYCLE_CHECKPOINT_DIR", raising=False)
        else:
            monkeypatch.setenv("BICYCLE_CHECKPOINT_DIR", value)
        assert options_of_new_job({"plugin": "p"}).checkpoint_dir == expected
        assert options_of_new_job({"plugin": "p", "checkpoint_dir": "c"}).checkpoint_dir == "c"


def test_a_stored_request_ignores_the_environment(monkeypatch):
    request = request_of()
    monkeypatch.setenv("BICYCLE_CHECKPOINT_DIR", "/elsewhere")

    assert JobRequest.from_json(request.to_json()).options.checkpoint_dir == (
        request.options.checkpoint_dir
    )
