"""State on disk is a cache: whatever happens to it, what is sealed comes back, and no more."""

import logging
import shutil

import pytest

from bicycle_runtime.records.keys import encode_key
from bicycle_runtime.state.errors import LOCAL_STATE_UNUSABLE
from bicycle_runtime.state.rocksdb.key_layout import behind, index_key, indexed_time, key_bytes
from bicycle_runtime.state.sealed import refs
from tests.raising import raises
from tests.unit.state.disk_workers import BLANK, Worker, put


@pytest.fixture
def start(tmp_path):
    """Starts worker processes over the same local folder and the same sealed files."""
    started = []

    def start(**settings):
        started.append(Worker(tmp_path, **settings))
        return started[-1]

    yield start
    for worker in started:
        worker.store.close()


@pytest.fixture
def sealed(start):
    """Three sealed epochs, and no process."""
    worker = start()
    sealed = worker.epoch(BLANK, 1, put(0, ada=1, bob=2))
    sealed = worker.epoch(sealed, 2, put(1, eve=3))
    sealed = worker.epoch(sealed, 3, put(0, ada=4))
    worker.store.at(sealed)
    worker.store.close()
    return sealed


EXPECTED = {"ada": 4, "bob": 2, "eve": 3}, [7, 3, 0, 0]


def slots(tmp_path):
    return sorted((tmp_path / "local").glob("*/slot-*"))


def content(tmp_path):
    return next(slots(tmp_path)[0].glob("rocksdb-*"))


def events(caplog):
    return [record.getMessage() for record in caplog.records]


def reads_of(worker):
    """Return the paths of sealed files that a worker reads from now on."""
    ahead, paths = worker.store.files._ahead, []

    def noted(objects):
        paths.extend(path for path, _ in objects)
        return ahead(objects)

    worker.store.files._ahead = noted
    return paths


def test_a_process_that_follows_another_reads_no_sealed_file(start, sealed):
    worker = start()
    paths = reads_of(worker)

    assert worker.read(sealed) == EXPECTED
    assert paths == []


def test_a_folder_that_is_behind_reads_what_it_lacks(start, sealed):
    other, late = start(), start()
    late.store.at(sealed)
    newer = other.epoch(sealed, 4, put(2, joe=5))
    other.store.close()
    paths = reads_of(late)
    late.store.commit(sealed, epoch=4, attempt="lost", is_interval_over=False)

    assert late.read(newer) == ({**EXPECTED[0], "joe": 5}, [7, 3, 5, 0])
    assert paths == [newer.files[-1].path]


@pytest.mark.parametrize("is_open", [False, True])
def test_what_no_manifest_names_never_reaches_the_folder(start, sealed, is_open):
    worker = start()
    worker.epoch(sealed, 4, put(0, ada=99, zoe=99))
    if not is_open:
        worker.store.close()

    assert worker.read(sealed) == EXPECTED
    worker.epoch(sealed, 4, lambda function: function(0).counts.clear())
    assert worker.read(sealed) == EXPECTED


def remove(path):
    shutil.rmtree(path)


def empty(path):
    for file in path.iterdir():
        file.unlink()


def make_a_file(path):
    shutil.rmtree(path)
    path.write_bytes(b"no folder")


def cut(path):
    for file in path.glob("*.sst"):
        file.write_bytes(file.read_bytes()[:-20])


def flip(path):
    for file in path.glob("MANIFEST-*"):
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 0xFF
        file.write_bytes(data)


def lose_the_index(path):
    (path / "CURRENT").write_bytes(b"nonsense")


@pytest.mark.parametrize(
    "damage", [remove, empty, make_a_file, cut, flip, lose_the_index], ids=lambda one: one.__name__
)
def test_a_damaged_folder_is_built_anew(start, sealed, tmp_path, caplog, damage):
    damage(content(tmp_path))

    with caplog.at_level(logging.WARNING):
        worker = start()
        assert worker.read(sealed) == EXPECTED
    assert events(caplog) == ([] if damage in (remove, empty) else ["state_folder_damaged"])
    newer = worker.epoch(sealed, 4, put(0, ada=5))
    worker.store.close()
    assert start().read(newer) == ({**EXPECTED[0], "ada": 5}, [12, 3, 0, 0])


@pytest.mark.parametrize("expected", [[], ["ada", "bob"]], ids=["one-by-one", "batch"])
def test_a_folder_that_fails_in_the_middle_of_an_epoch_is_built_anew(
    start, sealed, caplog, expected
):
    worker = start()
    table = worker.store.at(sealed)
    counts = table.group(0).instance.counts
    counts["new"] = 1
    worker.tables.space.expect(lambda: expected, dict.fromkeys(expected, 0))
    worker.tables.space.cache._space.close()

    with caplog.at_level(logging.WARNING):
        assert (counts["bob"], counts["new"]) == (2, 1)
    assert events(caplog) == ["state_folder_damaged"]
    worker.tables.space.cache._space.close()
    assert sorted(counts) == ["ada", "bob", "new"]
    newer = worker.store.commit(sealed, epoch=4, attempt="a", is_interval_over=False)
    worker.tables.space.cache._space.close()
    assert worker.read(newer)[0] == {**EXPECTED[0], "new": 1}


def test_the_folder_of_another_job_is_not_used(start, sealed, tmp_path, caplog):
    stranger = Worker(tmp_path / "another", job_url="another")
    stranger.epoch(BLANK, 1, put(0, ada=1_000))
    stranger.store.close()
    (ours,), (theirs,) = slots(tmp_path), slots(tmp_path / "another")
    shutil.rmtree(ours)
    shutil.copytree(theirs, ours)

    with caplog.at_level(logging.WARNING):
        assert start().read(sealed) == EXPECTED
    assert events(caplog) == ["state_folder_foreign"]


def test_the_folder_of_a_zombie_is_left_alone(start, sealed, tmp_path, caplog):
    zombie = start()
    table = zombie.store.at(sealed)
    with caplog.at_level(logging.INFO):
        worker = start()
        newer = worker.epoch(sealed, 4, put(0, ada=5))
    table.group(0).instance.counts["ada"] = 666
    zombie.store.commit(sealed, epoch=4, attempt="zombie", is_interval_over=False)

    assert "state_folder_held_by_another" in events(caplog)
    assert worker.read(newer)[0]["ada"] == 5
    assert len(slots(tmp_path)) == 2
    zombie.store.close()
    assert start().read(newer)[0]["ada"] == 5
    assert len(slots(tmp_path)) == 2


def test_a_folder_at_an_epoch_that_nobody_remembers_is_built_anew(start, sealed):
    worker = start()
    worker.epoch(sealed, 4, put(0, ada=99))
    branch = worker.epoch(sealed, 5, put(0, ada=98))
    worker.store.at(branch)
    worker.store.close()

    assert start().read(sealed) == EXPECTED


def test_a_folder_that_was_not_finished_is_not_taken_for_whole(start, sealed, tmp_path):
    worker = start()
    worker.store.at(sealed)
    with pytest.raises(ZeroDivisionError):
        worker.tables.space.cache._space.apply((1 / 0 for _ in [1]), "label")
    worker.store.close()

    assert start().read(sealed) == EXPECTED


def test_a_folder_that_cannot_be_made_is_an_error_that_names_it(start, tmp_path):
    (tmp_path / "local").write_text("in the way")

    with raises(LOCAL_STATE_UNUSABLE) as caught:
        start().store.at(BLANK)
    assert str(tmp_path / "local") in caught.value.facts["folder"]


def test_a_folder_that_lags_behind_a_base_reads_the_deltas_in_it(start, sealed):
    other, late = start(), start()
    late.store.at(sealed)
    late.store.commit(sealed, epoch=4, attempt="lost", is_interval_over=False)
    newer = with_base(other, sealed, 4)
    paths = reads_of(late)

    assert newer.files[0].is_base
    assert late.read(newer) == ({**EXPECTED[0], "joe": 6}, [7, 3, 15, 0])
    assert paths == [path for epoch, path in newer.recent if epoch > sealed.epoch]


def test_a_folder_that_lags_behind_a_base_is_built_anew_when_deltas_are_gone(start, sealed):
    other, late = start(), start()
    late.store.at(sealed)
    late.store.commit(sealed, epoch=4, attempt="lost", is_interval_over=False)
    newer = with_base(other, sealed, 4)
    other.storage.delete(next(path for epoch, path in newer.recent if epoch == 4))

    assert late.read(newer) == ({**EXPECTED[0], "joe": 6}, [7, 3, 15, 0])


def with_base(worker, sealed, number):
    """Run three epochs, in the last of which a base is taken."""
    for count, is_over in ((4, True), (5, False), (6, False)):
        sealed = worker.epoch(sealed, number, put(2, joe=count), is_interval_over=is_over)
        number += 1
    return sealed


def test_files_too_large_to_merge_in_memory_stay_apart(start, monkeypatch):
    monkeypatch.setattr(refs, "MERGE_BYTES_MAX", 10)
    worker, sealed = start(), BLANK
    for number in range(1, 20):
        sealed = worker.epoch(sealed, number, put(0, ada=1))

    assert len(sealed.files) == 19
    worker.store.close()
    assert start().read(sealed) == ({"ada": 1}, [19, 0, 0, 0])


@pytest.mark.parametrize("time_ms", [-(2**63), -256, -255, -1, 0, 1, 255, 256, 2**63 - 1])
def test_the_index_by_time_tells_the_time(time_ms):
    assert indexed_time(index_key("$ttl.n", time_ms, "ada"), "$ttl.n") == time_ms


def test_places_of_one_start_lie_before_what_is_behind_it():
    start = encode_key("a")

    assert start < start + b"\xff\xff" < behind(start)
    assert behind(b"a\xff") == b"b"
    assert key_bytes(1) == key_bytes(True) == key_bytes(1.0)
