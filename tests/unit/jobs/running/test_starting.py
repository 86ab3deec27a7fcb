"""A job begins with its own epochs, or with one that it is given, once."""

from dataclasses import replace
from pathlib import Path

import pytest

from bicycle_runtime.connectors.errors import OUTPUT_HELD
from bicycle_runtime.jobs.home import Home, locate_job
from bicycle_runtime.jobs.running.starting import adopt_starting_point, prepare_job_setup
from bicycle_runtime.recovery.adoption import find_origin
from bicycle_runtime.recovery.errors import (
    CHECKPOINT_OCCUPIED,
    RESTORE_UNFINISHED,
    STATE_LOST,
    SavepointUnfinishedError,
)
from bicycle_runtime.recovery.manifest import encode_manifest
from bicycle_runtime.testing import Harness
from bicycle_sdk import KeyedProcessFunction, ValueStateDescriptor
from bicycle_sdk.clock import SystemClock
from bicycle_sdk.connectors import file_sink
from bicycle_sdk.errors import OptionError
from bicycle_sdk.random_source import system_random
from tests.raising import raises
from tests.unit.jobs.job_samples import bundle_of, request_of


def counts(env):
    env.read_text("in").uid("words").key_by(str).count().uid("counts").collect("out")


def other(env):
    env.read_text("in").uid("words").key_by(str).count().uid("sums").collect("out")


@pytest.fixture
def origin():
    with Harness(counts, scripted=["words"]) as harness:
        harness.push(["ada", "bob"])
        harness.run_epoch()
        yield harness.storage


@pytest.fixture
def place(tmp_path):
    home = Home(tmp_path / "home")
    home.prepare()
    options = request_of(checkpoint_dir=str(tmp_path / "checkpoints"), name="job").options
    return locate_job(options, home, clock=SystemClock(), source=system_random())


def named(env):
    words = env.read_text("in").uid("words").key_by(str)
    words.process_fn(Named()).uid("counts").collect("out")


class Named(KeyedProcessFunction):
    count = ValueStateDescriptor("count", str)

    def process_element(self, word, ctx):
        return [word]


def begin(place, build=counts, **options):
    return adopt_starting_point(request_of(**options), place, bundle_of(build), clock=SystemClock())


def test_a_job_that_begins_with_an_epoch_does_so_once_however_often_it_is_started(place, origin):
    request = begin(place, from_=origin.url, parallelism=3)

    assert find_origin(place.storage).manifest == find_origin(origin).manifest
    assert (request.options.from_, request.options.parallelism) == (None, 3)
    assert place.folder.read_request() == replace(request, directory=str(Path.cwd()))
    assert adopt_starting_point(request, place, bundle_of(counts), clock=SystemClock()) == request


def test_a_start_that_came_no_further_is_repeated_until_an_epoch_is_sealed(place, origin):
    begin(place, from_=origin.url)
    place.storage.write("connectors/words/journal", b"received meanwhile")
    place.storage.write("restore.unfinished", b"")  # As after a crash in the last step.

    begin(place, from_=origin.url)

    assert place.storage.read("connectors/words/journal") == b"received meanwhile"
    begin(place)
    next_one = replace(find_origin(origin).manifest, epoch=2)
    place.storage.create("epochs/000000000002.manifest", encode_manifest(next_one))
    with raises(CHECKPOINT_OCCUPIED):
        begin(place, from_=origin.url)


def test_a_place_that_began_elsewhere_is_not_taken_for_one_that_began_here(place, origin):
    begin(place, from_=origin.url)
    with Harness(counts, scripted=["words"]) as another:
        another.push(["cy"])
        another.run_epoch()
        with raises(CHECKPOINT_OCCUPIED):
            begin(place, from_=another.storage.url)


def test_a_wrong_option_is_told_before_anything_is_copied(place, origin):
    with pytest.raises(OptionError):
        begin(place, from_=origin.url, parallelism=30_000)

    assert place.storage.list("") == []


def test_a_job_whose_files_another_one_goes_on_with_is_refused_before_anything_is_copied(
    place, tmp_path
):
    def files(env):
        lines = env.read_text("in").uid("lines")
        lines.sink_to(file_sink(str(tmp_path / "out"), format="jsonl")).uid("files")

    with Harness(files, scripted=["lines"], real_sinks=["files"]) as first:
        first.push(["ada"])
        first.run()
        first.loop.close_outputs()
        origin = first.storage.url
        with raises(OUTPUT_HELD) as caught:
            begin(place, files, from_=origin)

        assert caught.value.facts["owner"] == "harness"
        assert place.storage.list("") == []
        first.loop.__exit__(None, None, None)
        begin(place, files, from_=origin)


def test_state_that_the_job_does_not_declare_is_given_up_only_where_that_is_allowed(place, origin):
    with raises(STATE_LOST):
        begin(place, named, from_=origin.url)
    assert place.storage.list("") == []

    begin(place, named, from_=origin.url, allow_dropped_state=True)

    assert find_origin(place.storage).manifest == find_origin(origin).manifest


def test_a_job_without_such_an_epoch_is_left_as_it_is(place):
    request = request_of()

    assert adopt_starting_point(request, place, bundle_of(counts), clock=SystemClock()) is request
    assert place.storage.list("") == []


def test_a_graph_that_lacks_operators_is_refused_before_anything_is_copied(place, origin):
    with raises(STATE_LOST) as caught:
        begin(place, other, from_=origin.url)

    assert "counts" in caught.value.facts["lost"]
    assert place.storage.list("") == []


def test_state_that_is_divided_otherwise_is_refused_before_anything_is_copied(place, origin):
    def divided(env):
        counts(env)
        env.set_max_parallelism(64)

    with raises(STATE_LOST, match="64 groups"):
        begin(place, divided, from_=origin.url)
    assert place.storage.list("") == []

    begin(place, divided, from_=origin.url, allow_dropped_state=True)


def test_half_of_an_epoch_is_neither_a_checkpoint_nor_an_empty_place(place, origin):
    place.storage.write("restore.unfinished", b"")
    place.storage.write("state/counts/half", b"x")
    with raises(RESTORE_UNFINISHED):
        begin(place)

    begin(place, from_=origin.url)

    assert not place.storage.exists("state/counts/half")
    begin(place)


def test_a_job_is_planned_without_a_trace_in_its_checkpoint(place):
    place.storage.write("job.json", b'{"plugin": "the one that ran"}')

    setup = prepare_job_setup(bundle_of(counts), request_of(), place)

    assert setup.storage.read("job.json") == b'{"plugin": "the one that ran"}'
    assert place.storage.list("") == ["job.json"]


def test_a_savepoint_that_was_never_finished_is_no_beginning(place, origin):
    origin.write("savepoint.unfinished", b"")
    with pytest.raises(SavepointUnfinishedError):
        begin(place, from_=origin.url)


def test_the_option_is_spelled_as_it_is_said(place):
    request = request_of(from_="/data/one")

    assert request.command_words("run")[-2:] == ["--from", "/data/one"]
    assert "--from" not in request.command_words("run", from_=None)
