"""Jobs that load no pickles: typed state goes on, and whatever a checkpoint hides stays shut."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.records.codecs import AnyCodec
from bicycle_runtime.records.errors import PICKLE_REFUSED
from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import KeyedProcessFunction, RichAsyncFunction
from tests.raising import raises


class Trap:
    """Makes a file when it is loaded from a pickle."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return Path.touch, (Path(self.path),)


@dataclass
class Counter(RichAsyncFunction[str, tuple[str, int]]):
    counts: dict[str, int] = field(default_factory=dict)

    async def process(self, value, ctx):
        self.counts[value] = self.counts.get(value, 0) + 1
        return [(value, self.counts[value])]


class Keeper(KeyedProcessFunction[str, str, str]):
    """Keeps what ``made`` gives for each key, without a type."""

    def __init__(self, made):
        self.made = made

    def process_element(self, value, ctx):
        ctx.get_state("kept", None)
        ctx.save_state("kept", self.made())
        return [value]


def typed(env):
    words = env.add_source(script_source(str)).uid("words").key_by(lambda w: w)
    words.process(Counter()).uid("rich").collect("rich")
    words.count().uid("count").collect("count")


def keeping(made):
    def job(env):
        words = env.add_source(script_source(str)).uid("words").key_by(lambda w: w)
        words.process_fn(Keeper(made)).uid("keeper").collect("out")

    return job


def looping(made):
    def job(env):
        head = (
            env.add_source(script_source(str)).uid("words").map(lambda w: (w, 2, made())).iterate()
        )
        more = head.map(lambda v: (v[0], v[1] - 1, v[2]))
        head.feedback(more.filter(lambda v: v[1] > 0))
        more.map(lambda v: v[0]).collect("out")

    return job


def nothing():
    return None


@pytest.fixture(params=["memory", "rocksdb"])
def engine(request):
    def options(*, no_pickle):
        return EngineOptions(state_backend=request.param, no_pickle=no_pickle)

    return options


def test_typed_state_goes_on_over_a_crash(engine):
    with Harness(typed, engine=engine(no_pickle=True)) as harness:
        for _ in range(3):
            harness.push(["ada", "bob"])
            harness.run()
            harness.crash()
        assert max(harness.results("rich")) == ("bob", 3)
        assert max(harness.results("count")) == ("bob", 3)


def test_state_that_would_be_pickled_is_refused_before_it_is_sealed(engine):
    with Harness(keeping(lambda: {"a": {1}}), engine=engine(no_pickle=True)) as harness:
        harness.push(["ada"])
        with raises(PICKLE_REFUSED):
            harness.run()
        assert harness.epoch == 0


@pytest.mark.parametrize("job", [keeping, looping])
def test_a_checkpoint_with_a_trap_springs_it_only_where_pickles_are_loaded(job, engine, tmp_path):
    trapped, place = job(lambda: Trap(tmp_path / "sprung")), tmp_path / "checkpoint"
    with Harness(trapped, engine=engine(no_pickle=False)) as harness:
        harness.push(["ada"])
        harness.run_epoch()
        shutil.copytree(harness.storage.root, place)
    (tmp_path / "sprung").unlink(missing_ok=True)
    with (
        Harness(job(nothing), engine=engine(no_pickle=True), start_from=str(place)) as harness,
        raises(PICKLE_REFUSED),
    ):
        harness.push(["ada", "ada"])  # The first one is read already.
        harness.run()
    assert not (tmp_path / "sprung").exists()
    with Harness(job(nothing), engine=engine(no_pickle=False), start_from=str(place)) as harness:
        harness.push(["ada", "ada"])
        harness.run()
    assert (tmp_path / "sprung").exists()


def test_a_worker_that_is_closed_leaves_pickles_to_others(engine):
    with Harness(typed, engine=engine(no_pickle=True)) as harness:
        harness.push(["ada"])
        harness.run()

    assert AnyCodec().decode_list(AnyCodec().encode_list([{1, 2}])) == [{1, 2}]
