"""Dicts of which only a part is in memory behave as dicts do, whatever lies where."""

import copy
import json
import pickle

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bicycle_runtime.state.disk.dicts import DiskDict
from tests.examples import examples
from tests.unit.state.disk_workers import BLANK, Worker

KEYS = st.sampled_from(["", "a", "a\x00", "b\x00c", "é", "\udc80", "zz"])
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(["put", "default", "pop", "get", "add", "fresh"]), KEYS, st.integers()
        ),
        st.tuples(
            st.sampled_from(["clear", "seal", "seal", "age", "lose", "replace", "last", "take"])
        ),
        st.tuples(st.just("expect"), st.lists(KEYS, max_size=4)),
        st.tuples(st.just("update"), st.dictionaries(KEYS, st.integers(), max_size=3)),
    ),
    max_size=40,
)


class Play:
    """A dict attribute on disk, and the dict that it should be."""

    def __init__(self, folder):
        self.worker = Worker(folder, cache_entries=2)
        self.sealed = self.model_sealed = None
        self.sealed, self.model, self.epoch = BLANK, {}, 0
        self.begin()

    def begin(self):
        self.table = self.worker.store.at(self.sealed)

    @property
    def function(self):
        return self.table.group(1).instance

    @property
    def counts(self):
        return self.function.counts

    def step(self, word, *parts):
        getattr(self, word)(*parts)

    def put(self, key, number):
        self.counts[key] = self.model[key] = number

    def default(self, key, number):
        assert self.counts.setdefault(key, number) == self.model.setdefault(key, number)

    def pop(self, key, number):
        assert self.counts.pop(key, number) == self.model.pop(key, number)

    def get(self, key, number):
        assert self.counts.get(key, number) == self.model.get(key, number)
        assert (key in self.counts) == (key in self.model)

    def add(self, key, number):
        self.counts[key] = self.counts.get(key, 0) + number
        self.model[key] = self.model.get(key, 0) + number

    def fresh(self, key, number):
        assert self.counts.add(key, number) == (key not in self.model)
        self.model.setdefault(key, number)

    def take(self):
        keys = list(self.model)[::2]
        assert self.counts.take_all(keys) == [self.model.pop(key) for key in keys]

    def clear(self):
        self.counts.clear()
        self.model.clear()

    def update(self, entries):
        self.counts.update(entries)
        self.model.update(entries)

    def replace(self):
        self.function.counts = {"new": 1}
        self.model = {"new": 1}
        self.seal()

    def last(self):
        if self.model:
            key, value = self.counts.popitem()
            assert self.model.pop(key) == value
        else:
            with pytest.raises(KeyError):
                self.counts.popitem()

    def expect(self, keys):
        self.worker.tables.space.expect(lambda: keys, dict.fromkeys(keys, 1))

    def seal(self):
        self.epoch += 1
        self.sealed = self.worker.store.commit(
            self.sealed, epoch=self.epoch, attempt="a", is_interval_over=self.epoch % 3 == 0
        )
        self.begin()

    def age(self):
        self.counts.age(0.5)

    def lose(self):
        self.seal()
        self.worker.store.close()
        self.begin()


@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_a_dict_on_disk_is_a_dict(tmp_path_factory, steps):
    play = Play(tmp_path_factory.mktemp("state"))
    try:
        for step in steps:
            play.step(*step)
            assert play.counts == play.model
        assert isinstance(play.counts, DiskDict)
        assert dict(play.counts) == play.model
        assert len(play.counts) == len(play.model)
        assert bool(play.counts) == bool(play.model)
        assert sorted(play.counts.values()) == sorted(play.model.values())
        assert dict(play.counts.items()) == {**play.counts} == play.model
        assert set(play.counts) == set(reversed(play.counts)) == play.counts.keys()
    finally:
        play.worker.store.close()


@pytest.fixture
def counts(tmp_path):
    """A dict of two entries, one of them on disk alone."""
    worker = Worker(tmp_path)
    sealed = worker.epoch(BLANK, 1, lambda function: function(0).counts.update(ada=1))
    worker.store.close()
    counts = worker.store.at(sealed).group(0).instance.counts
    counts["bob"] = 2
    yield counts
    worker.store.close()


def test_copies_are_plain_and_whole(counts):
    expected = {"ada": 1, "bob": 2}

    for copied in (
        counts.copy(),
        copy.copy(counts),
        copy.deepcopy(counts),
        pickle.loads(pickle.dumps(counts)),
        counts | {},
        {} | counts,
    ):
        assert type(copied) is dict
        assert copied == expected
    assert repr(counts) == repr(expected)
    assert json.loads(json.dumps(dict(counts))) == expected


def test_what_is_missing_is_a_key_error(counts):
    with pytest.raises(KeyError):
        counts["eve"]
    with pytest.raises(KeyError):
        del counts["eve"]
    with pytest.raises(KeyError):
        counts.pop("eve")


def test_a_value_that_was_changed_in_place_is_sealed(tmp_path):
    worker = Worker(tmp_path, cache_entries=2)
    sealed = worker.epoch(BLANK, 1, lambda function: function(0).lists.update(ada=[1], bob=[1]))
    worker.store.close()

    def write(function):
        function(0).lists["ada"].append(2)
        for numbers in function(0).lists.values():
            worker.tables.space.trim()
            numbers.append(3)
            worker.tables.space.trim()

    sealed = worker.epoch(sealed, 2, write)
    worker.store.close()

    lists = worker.store.at(sealed).group(0).instance.lists
    assert lists == {"ada": [1, 2, 3], "bob": [1, 3]}
    worker.store.close()


def test_what_a_dict_had_at_first_is_there_until_its_group_is_written(tmp_path):
    worker = Worker(tmp_path)

    def write(function):
        assert function(0).seeded == {"first": 1}
        del function(0).seeded["first"]
        function(0).counts["ada"] = 1

    sealed = worker.epoch(BLANK, 1, write)
    worker.store.close()
    table = worker.store.at(sealed)

    assert table.group(0).instance.seeded == {}
    assert table.group(1).instance.seeded == {"first": 1}
    worker.store.close()


def test_memory_is_bounded_by_the_cache_and_the_epoch(tmp_path):
    worker = Worker(tmp_path, cache_entries=100)
    sealed = BLANK
    for number in range(1, 21):
        names = {f"{number}-{index}": index for index in range(200)}
        sealed = worker.epoch(sealed, number, lambda function, names=names: put(function, names))
    counts = worker.store.at(sealed).group(0).instance.counts
    most = 0
    for number in range(1, 21):
        for index in range(200):
            assert counts[f"{number}-{index}"] == index
            if index % 10 == 0:
                worker.tables.space.trim()
                most = max(most, counts.clean_count() + len(counts._warm))

    assert len(counts) == 4_000
    assert most <= 100 + 10
    worker.store.close()


def put(function, entries):
    function(0).counts.update(entries)
