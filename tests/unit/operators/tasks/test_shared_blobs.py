"""Records that go along several edges are encoded once, sent once, and read as often as needed."""

import weakref
from array import array
from dataclasses import dataclass, field, replace

import pytest

from bicycle_runtime.operators.batch import Batch, ExchangeLineage
from bicycle_runtime.operators.spec import Link, RouteSpec
from bicycle_runtime.operators.tasks.routing import ShuffleRouter
from bicycle_runtime.operators.tasks.shared_blobs import ReceivedBlobs, SentBlobs
from bicycle_runtime.records.blobs import decode_records, open_block, read_header
from bicycle_runtime.records.codecs import RecordCodec
from bicycle_sdk.graph import Partitioning


@dataclass(frozen=True)
class Fixed:
    key: str
    size: int


@dataclass
class Loose:
    key: str
    sizes: list[int] = field(default_factory=list)


ROUTE = RouteSpec(
    edge=0, link=Link.SHUFFLE, partitioning=Partitioning.HASH, operator=0, tag=None,
    target_chain=1, target_level=1, target_parallelism=2, group_count=4, type_payload=None,
)  # fmt: skip


class Task:
    """Edges out of one task, and what arrives at each of the tasks of the next level."""

    def __init__(self, *types, partitioning=Partitioning.HASH):
        self.codecs = list(map(RecordCodec, types))
        self.blocks, self.sent = [], SentBlobs()
        self.routers = [
            ShuffleRouter(
                replace(ROUTE, edge=edge, partitioning=partitioning), 0, codec,
                next_parallelism=2, emit=self.blocks.append, sent=self.sent,
            )
            for edge, codec in enumerate(self.codecs)
        ]  # fmt: skip
        for router in self.routers:
            router.begin_epoch(1, 0)

    def send(self, edge, values, groups=None):
        groups = bytes(groups or [n % 4 for n in range(len(values))])
        times = array("q", range(len(values)))
        self.routers[edge].send(Batch(values, ExchangeLineage(None, times), groups))

    def flush(self, *edges, is_end=True):
        for edge in edges or range(len(self.routers)):
            self.routers[edge].flush(is_end=is_end)

    def arrived(self, target):
        """Return by edge the records, with their groups, that a task reads; in its order."""
        blobs = [
            (read_header(body), body)
            for block_target, block in self.blocks
            for _, body in [open_block(block)]
            if block_target == target
        ]
        blobs.sort(key=lambda item: (item[0].edge, item[0].sequence))
        received = ReceivedBlobs(blobs)
        found = {}
        for blob, body in blobs:
            codec = self.codecs[blob.edge]
            values, groups, _ = decode_records(body, blob, codec, received.records(blob, codec))
            assert len(values) == blob.record_count
            found.setdefault(blob.edge, []).extend(zip(values, groups or (), strict=False))
        return found

    def own_count(self):
        """Return how many blobs have records of their own."""
        return sum(read_header(open_block(block)[1]).holder is None for _, block in self.blocks)


FIXED = [Fixed(f"key-{n}", n) for n in range(8)]
LOOSE = [Loose(f"key-{n}", [n]) for n in range(8)]


@pytest.mark.parametrize(
    ("declared", "values"),
    [(Fixed, FIXED), (Loose, LOOSE), (None, [1, "a", None, 2.5]), (None, LOOSE), (Fixed, LOOSE)],
)
def test_edges_with_the_same_records_send_them_once(declared, values):
    task = Task(declared, declared, declared)
    for edge in range(3):
        task.send(edge, values)
    task.flush()

    assert len(task.blocks) == 6
    assert task.own_count() == 2
    for target, groups in ((0, (0, 1)), (1, (2, 3))):
        expected = [(value, n % 4) for n, value in enumerate(values) if n % 4 in groups]
        assert task.arrived(target) == {0: expected, 1: expected, 2: expected}


def test_records_that_cannot_change_are_read_once_and_others_for_each_edge():
    for declared, values, is_one in ((Fixed, FIXED, True), (Loose, LOOSE, False)):
        task = Task(declared, declared)
        task.send(0, values)
        task.send(1, values)
        task.flush()
        first, second = task.arrived(0).values()

        assert first == second
        pairs = zip(first, second, strict=True)
        assert all((one is other) == is_one for (one, _), (other, _) in pairs)


def test_what_differs_is_sent_by_each_edge():
    task = Task(Fixed, Fixed, Fixed, tuple[str, int], None)
    equal = [Fixed(value.key, value.size) for value in FIXED]
    for edge, values in enumerate([FIXED, FIXED[::-1], equal, FIXED, FIXED]):
        task.send(edge, values, [0] * 8)
    task.flush()

    assert task.own_count() == 5
    assert [[value for value, _ in found] for found in task.arrived(0).values()] == [
        FIXED, FIXED[::-1], FIXED, FIXED, FIXED,
    ]  # fmt: skip


def test_edges_that_divide_records_differently_share_what_a_task_gets_from_both():
    task = Task(Fixed, Fixed)
    task.send(0, FIXED, [0, 0, 0, 0, 2, 2, 2, 2])
    task.send(1, FIXED, [1, 1, 1, 1, 2, 2, 2, 3])
    task.flush()

    assert task.own_count() == 2
    assert task.arrived(0) == {
        edge: [(value, edge) for value in FIXED[:4]] for edge in range(2)
    }  # fmt: skip
    assert task.arrived(1)[1] == [(value, 2) for value in FIXED[4:7]] + [(FIXED[7], 3)]


def test_records_that_a_function_changes_between_two_edges_are_sent_as_they_are_then():
    task = Task(Loose, Loose)
    values = [Loose("a", [1])]
    task.send(0, values)
    task.flush(0, is_end=False)
    values[0].sizes.append(2)
    task.send(1, values)
    task.flush(1, is_end=False)

    assert task.arrived(0) == {0: [(Loose("a", [1]), 0)], 1: [(Loose("a", [1, 2]), 0)]}


def test_records_of_several_blobs_are_shared_blob_by_blob():
    task = Task(Fixed, Fixed)
    for values in (FIXED[:3], FIXED[3:]):
        for edge in range(2):
            task.send(edge, values, [0] * len(values))
            task.flush(edge, is_end=False)

    assert task.own_count() == 2
    assert task.arrived(0) == {edge: [(value, 0) for value in FIXED] for edge in range(2)}


def test_broadcast_records_reach_all_tasks_also_when_shared():
    task = Task(Fixed, Fixed, partitioning=Partitioning.BROADCAST)
    task.send(0, FIXED)
    task.send(1, FIXED)
    task.flush()

    for _, block in task.blocks:
        _, body = open_block(block)
        assert read_header(body).record_count == len(FIXED)
    for target in range(2):
        blobs = [
            (read_header(body), body)
            for block_target, block in task.blocks
            for _, body in [open_block(block)]
            if block_target == target
        ]
        received = ReceivedBlobs(blobs)
        codec = RecordCodec(Fixed)
        found = [decode_records(b, h, codec, received.records(h, codec))[0] for h, b in blobs]
        assert found == [FIXED, FIXED]


@pytest.mark.parametrize("types", [(Fixed,), (Fixed, Loose)])
def test_records_are_gone_once_they_are_sent_where_no_other_edge_can_have_them(types):
    task = Task(*types)
    values = [Fixed("a", 1)]
    lived = weakref.ref(values[0])
    task.send(0, values)
    del values
    task.flush(0)

    assert lived() is None


def test_nothing_is_held_once_all_is_forgotten():
    task = Task(Fixed, Fixed)
    task.send(0, FIXED)
    task.flush(0)
    task.sent.forget()
    task.send(1, FIXED)
    task.flush(1)

    assert task.own_count() == 4
