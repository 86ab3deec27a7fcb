"""Bases are made beside the epochs: whatever becomes of them, the state is what was sealed."""

import shutil
import threading

import pytest

from bicycle_runtime.base.faults import BASE_POINTS, InjectedFault, arm_fault, disarm_faults
from bicycle_runtime.base.storage_urls import open_storage
from bicycle_runtime.layouts.state import BaseIndex, BaseMark
from bicycle_runtime.state.errors import StateFileError
from bicycle_runtime.state.rocksdb.space import RocksSpace
from bicycle_runtime.state.sealed import bases as bases_module
from bicycle_runtime.state.sealed.bases import decode_index, encode_index
from bicycle_runtime.state.stores import store
from bicycle_runtime.state.stores.sealed_entries import sealed_entries
from tests.unit.state.disk_workers import BACKENDS, BLANK, Worker, counts_of, put
from tests.waiting import PATIENCE_S

EXPECTED = {"ada": 4, "bob": 2, "eve": 3}


@pytest.fixture(autouse=True)
def bases_at_each_interval(monkeypatch):
    """Let a base be worth while however little has changed."""
    monkeypatch.setattr(
        bases_module, "fold_start", lambda files, *, is_interval_over: is_interval_over
    )


@pytest.fixture
def start(tmp_path):
    """Starts worker processes over the same local folder and the same sealed files."""
    started = []

    def start(backend="rocksdb", **settings):
        started.append(Worker(tmp_path, backend=backend, **settings))
        return started[-1]

    yield start
    disarm_faults()
    for worker in started:
        worker.store.close()


def three_epochs(worker):
    sealed = worker.epoch(BLANK, 1, put(0, ada=1, bob=2))
    sealed = worker.epoch(sealed, 2, put(1, eve=3))
    return worker.epoch(sealed, 3, put(0, ada=4))


def with_base(worker, sealed, **counts):
    """Run three epochs: a base is announced, is made, and is taken."""
    for is_over in (True, False, False):
        sealed = worker.epoch(sealed, sealed.epoch + 1, put(3, **counts), is_interval_over=is_over)
    assert sealed.making is None
    assert sealed.files[0].is_base
    return sealed


@pytest.mark.parametrize("reader", BACKENDS)
@pytest.mark.parametrize("writer", BACKENDS)
def test_a_base_is_announced_made_and_taken_and_read_by_either_backend(start, writer, reader):
    worker = start(writer)
    sealed = three_epochs(worker)
    announced = worker.epoch(sealed, 4, put(2, joe=5), is_interval_over=True)
    taken = worker.epoch(announced, 5, put(2, kim=6))
    taken = worker.epoch(taken, 6, put(2, lee=7))

    assert announced.making == BaseMark(epoch=4, folder="state/op/00000-00004/000000000004-a4.base")
    assert [ref.is_base for ref in announced.files] == [False] * 4
    assert taken.making is None
    assert [(ref.is_base, ref.last_epoch) for ref in taken.files] == [
        (True, 4), (False, 5), (False, 6)
    ]  # fmt: skip
    worker.store.close()
    assert counts_of(start(reader), taken) == EXPECTED | {"joe": 5, "kim": 6, "lee": 7}
    after = start(reader).epoch(taken, 7, put(3, zoe=8))
    assert counts_of(start(writer), after) == EXPECTED | {"joe": 5, "kim": 6, "lee": 7, "zoe": 8}


@pytest.fixture
def gate():
    """Holds the threads that make bases, once they have written a file, until it is set."""
    gate = threading.Event()
    arm_fault("base_file_written", act=lambda: gate.wait(PATIENCE_S))
    yield gate
    gate.set()


def run_beside(worker, sealed, number):
    """Run an epoch that does not wait for a base."""
    table = worker.store.at(sealed)
    table.group(2).instance.counts["joe"] = number
    return worker.store.commit(sealed, epoch=number, attempt=f"a{number}", is_interval_over=False)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_epoch_does_not_wait_for_a_base(start, backend, gate):
    worker = start(backend)
    sealed = worker.epoch(three_epochs(worker), 4, put(2, joe=5), is_interval_over=True)
    for number in (5, 6, 7):
        sealed = run_beside(worker, sealed, number)
        assert sealed.making is not None
    gate.set()
    sealed = worker.epoch(sealed, 8, put(2, kim=8))

    assert (sealed.making, sealed.files[0].last_epoch) == (None, 4)
    worker.store.close()
    assert counts_of(start(backend), sealed) == EXPECTED | {"joe": 7, "kim": 8}


@pytest.mark.parametrize("is_restarted", [False, True])
def test_only_files_that_the_storage_has_not_got_are_written(
    start, tmp_path, is_restarted, monkeypatch
):
    monkeypatch.setattr(RocksSpace, "write_soon", lambda _: None)  # Four files are compacted.
    worker = start()
    first = with_base(worker, three_epochs(worker), joe=5)
    if is_restarted:
        worker.store.close()
        worker = start()  # It finds out from what lies on the disk.
    second = with_base(worker, first, joe=6)
    worker.store.close()

    before, after = ({sst.path for sst in state.files[0].ssts} for state in (first, second))
    folder = second.files[0].path.rpartition("/")[0]
    assert before < after
    assert after - before == {p for p in worker.storage.list(folder) if p.endswith(".sst")}
    worker.storage.delete(first.files[0].path)
    (tmp_path / "local").rename(tmp_path / "gone")
    assert counts_of(start(), second) == EXPECTED | {"joe": 6}


@pytest.mark.parametrize("backend", BACKENDS)
def test_another_worker_takes_what_one_made(start, backend, gate):
    maker = start(backend)
    announced = maker.epoch(three_epochs(maker), 4, put(2, joe=5), is_interval_over=True)
    carried = run_beside(maker, announced, 5)
    gate.set()
    maker.store.bases.wait()
    maker.store.close()
    taken = start(backend).epoch(carried, 6, put(2, joe=7))

    assert carried.making is not None
    assert [ref.last_epoch for ref in taken.files] == [4, 5, 6]
    assert counts_of(start(backend), taken) == EXPECTED | {"joe": 7}


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_workers_that_make_one_base_do_no_harm(start, backend):
    one, two = start(backend), start(backend)
    announced = one.epoch(three_epochs(one), 4, put(2, joe=5), is_interval_over=True)
    for worker in (one, two):
        worker.store.at(announced)
        worker.store.bases.wait()
    sealed = two.store.commit(announced, epoch=5, attempt="a5", is_interval_over=False)
    sealed = one.epoch(sealed, 5, put(2, joe=6))

    assert sealed.files[0].is_base
    assert counts_of(start(backend), sealed) == EXPECTED | {"joe": 6}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_base_that_nobody_makes_is_announced_anew(start, backend):
    worker = start(backend)
    sealed = worker.epoch(three_epochs(worker), 4, put(2, joe=5), is_interval_over=True)
    worker.store.close()
    others = [start(backend), start(backend)]
    others[0].store.bases.begin = lambda *_: None  # It dies in the epoch after.
    for number in range(5, 21):
        sealed = others[number > 5].epoch(
            sealed, number, put(2, joe=number), is_interval_over=number in (10, 20)
        )

    assert sealed.making is not None
    assert sealed.making.epoch == 20


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("point", BASE_POINTS)
def test_a_failure_at_any_step_costs_a_base_and_no_state(start, backend, point, caplog):
    worker = start(backend)
    sealed, expected = three_epochs(worker), dict(EXPECTED)
    arm_fault(point)
    number, is_tried_again = 4, False
    while number < 10:
        expected["joe"] = number
        try:
            sealed = worker.epoch(
                sealed, number, put(2, joe=number), is_interval_over=number in (4, 7)
            )
        except InjectedFault:
            worker.store.close()
            worker, is_tried_again = start(backend), True
            continue
        number += 1

    in_thread = point in ("base_file_written", "base_made")
    assert is_tried_again is not in_thread
    assert ("base_failed" in [record.getMessage() for record in caplog.records]) is in_thread
    assert any(ref.is_base for ref in sealed.files) or point == "base_begun"
    worker.store.close()
    assert counts_of(start(backend), sealed) == expected


def test_a_memory_base_lies_in_files_of_bounded_size(start, monkeypatch):
    monkeypatch.setattr(store, "_FILE_BYTES", 10)
    worker = start("memory")
    sealed = with_base(worker, three_epochs(worker), joe=5)

    assert [ref.is_base for ref in sealed.files] == [True, True, True, True, False, False]
    assert counts_of(start("memory"), sealed) == EXPECTED | {"joe": 5}


@pytest.mark.parametrize("reader", BACKENDS)
@pytest.mark.parametrize("writer", BACKENDS)
@pytest.mark.parametrize("is_based", [False, True], ids=["deltas", "base"])
def test_what_a_function_emptied_stays_empty(start, tmp_path, writer, reader, is_based):
    worker = start(writer)
    sealed = worker.epoch(BLANK, 1, lambda function: function(0).seeded.clear())
    sealed = worker.epoch(sealed, 2, lambda function: function(1).seeded.update(second=2))
    if is_based:
        sealed = with_base(worker, sealed, joe=5)
    elsewhere = start(reader, job_url="moved")

    def seeded(group):
        return dict(elsewhere.store.at(sealed).group(group).instance.seeded)

    assert [seeded(0), seeded(1), seeded(2)] == [{}, {"first": 1, "second": 2}, {"first": 1}]
    sealed = elsewhere.epoch(sealed, sealed.epoch + 1, lambda function: function(2).seeded.clear())
    assert seeded(2) == {}


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_one_who_looks_into_a_base_sees_its_entries(start, backend):
    worker = start(backend)
    sealed = with_base(worker, three_epochs(worker), joe=5)
    found = sealed_entries(worker.storage, sealed, operator="op", is_window=False)
    counts = {entry.key: entry.value() for entry in found if entry.state == "counts"}

    assert counts == EXPECTED | {"joe": 5}


def test_a_worker_that_was_away_reads_the_deltas_in_a_base(start):
    away, other = start("memory"), start("memory")
    sealed = away.epoch(three_epochs(other), 4, put(2, joe=5))
    based = with_base(other, sealed, joe=6)
    for path in base_paths(based):
        other.storage.delete(path)

    assert counts_of(away, based) == EXPECTED | {"joe": 6}


def base_paths(state):
    """Return the files of the base of a state."""
    return [ref.path for ref in state.files if ref.is_base]


@pytest.mark.parametrize("reader", BACKENDS)
def test_a_base_behind_a_url_is_brought_here(start, tmp_path, reader):
    storage = open_storage(f"memory://bases-{reader}")
    worker = start(storage=storage)
    sealed = with_base(worker, three_epochs(worker), joe=5)
    worker.store.close()
    (tmp_path / "local").rename(tmp_path / "gone")

    assert counts_of(start(reader, storage=storage), sealed) == EXPECTED | {"joe": 5}


# --- damage --------------------------------------------------------------------------------------


def flip(data):
    return data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]


DAMAGES = {"cut": lambda data: data[:-1], "flip": flip, "foreign": lambda data: b"else" * 50}


@pytest.mark.parametrize("reader", BACKENDS)
@pytest.mark.parametrize("damage", [*DAMAGES, "missing"])
@pytest.mark.parametrize("part", ["index", "sst"])
def test_a_damaged_base_in_the_storage_is_noticed(start, tmp_path, part, damage, reader):
    worker = start()
    sealed = with_base(worker, three_epochs(worker), joe=5)
    worker.store.close()
    base = sealed.files[0]
    path = base.path if part == "index" else base.ssts[0].path
    data = worker.storage.read(path)
    worker.storage.delete(path)
    if damage != "missing":
        worker.storage.write(path, DAMAGES[damage](data))
    elsewhere = Worker(tmp_path, backend=reader, job_url="moved")

    with pytest.raises(StateFileError) as caught:
        counts_of(elsewhere, sealed)
    elsewhere.store.close()
    assert caught.value.facts["operator"] == "op"
    assert caught.value.facts["path"] in (path, base.path)


def damages_of(data):
    """Return damaged copies of a file: bytes that were changed, cut ends, an empty file, none."""
    for at in range(0, len(data), 9):
        yield data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :]
    for at in range(0, len(data), 101):
        yield data[:at]
        yield data[:at] + bytes(len(data[at : at + 64])) + data[at + 64 :]
    yield data + b"x"
    yield None


@pytest.mark.parametrize("reader", ["entries", *BACKENDS])
def test_a_base_that_is_damaged_anywhere_is_refused_by_name_or_read_as_it_was(
    start, tmp_path, reader
):
    worker = start()
    sealed = with_base(worker, three_epochs(worker), joe=5)
    worker.store.close()
    base = sealed.files[0]

    def read():
        if reader == "entries":
            found = sealed_entries(worker.storage, sealed, operator="op", is_window=False)
            return {entry.key: entry.value() for entry in found if entry.state == "counts"}
        elsewhere = Worker(tmp_path, backend=reader, job_url="moved")
        try:
            return counts_of(elsewhere, sealed)
        finally:
            elsewhere.store.close()
            shutil.rmtree(tmp_path / "local", ignore_errors=True)

    outcomes = []
    for path in (base.path, *(sst.path for sst in base.ssts)):
        file = tmp_path / "sealed" / path
        whole = file.read_bytes()
        for damaged in list(damages_of(whole))[:: 1 if reader == "entries" else 11]:
            file.unlink() if damaged is None else file.write_bytes(damaged)
            try:
                assert read() == EXPECTED | {"joe": 5}  # RocksDB did not read these bytes.
                outcomes.append("whole")
            except StateFileError as error:
                assert error.facts["path"] == path
                outcomes.append("refused")
            file.write_bytes(whole)
    assert outcomes.count("refused") > len(outcomes) / 2


def test_a_base_of_another_layout_is_refused(start, tmp_path, monkeypatch):
    worker = start()
    sealed = with_base(worker, three_epochs(worker), joe=5)
    monkeypatch.setattr("bicycle_runtime.state.rocksdb.bases.READ_LAYOUTS", ("1",))

    with pytest.raises(StateFileError) as caught:
        counts_of(start("memory"), sealed)
    assert "layout" in caught.value.facts["reason"]


@pytest.mark.parametrize("position", range(0, 60, 7))
def test_an_index_with_a_flipped_byte_is_refused(position):
    whole = encode_index(
        BaseIndex(epoch=3, groups=(0, 4), layout="1", files={"CURRENT": b"x" * 40})
    )
    changed = bytearray(whole)
    changed[position] ^= 1

    assert decode_index(whole, path="p", operator="o").files == {"CURRENT": b"x" * 40}
    for damaged in (bytes(changed), whole[:position]):
        with pytest.raises(StateFileError):
            decode_index(damaged, path="p", operator="o")


def test_a_damaged_index_of_a_base_in_the_making_stops_nothing(start, caplog):
    worker = start("memory")
    announced = worker.epoch(three_epochs(worker), 4, put(2, joe=5), is_interval_over=True)
    worker.storage.write(announced.making.index, b"nonsense")
    sealed = worker.epoch(announced, 5, put(2, joe=6))

    assert sealed.making is None
    assert "base_failed" in [record.getMessage() for record in caplog.records]
    assert counts_of(start("memory"), sealed) == EXPECTED | {"joe": 6}


def test_what_lies_on_the_local_disk_shares_nothing_with_what_is_sealed(start, tmp_path):
    worker = start()
    sealed = with_base(worker, three_epochs(worker), joe=5)
    worker.store.close()
    (tmp_path / "local").rename(tmp_path / "gone")
    counts_of(start(), sealed)
    start().store.close()
    for file in (tmp_path / "local").rglob("*.sst"):
        file.write_bytes(b"damaged in place")

    assert counts_of(start(job_url="another"), sealed) == EXPECTED | {"joe": 5}
