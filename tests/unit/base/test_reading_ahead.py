"""Reading ahead: everything comes in its order, several requests at a time, with a bound."""

import random
import threading
from collections import Counter

import pytest

from bicycle_runtime.base.errors import ObjectMissingError
from bicycle_runtime.base.reading_ahead import objects_ahead, parts_ahead
from bicycle_runtime.base.s3_storage import S3Storage
from bicycle_runtime.base.storage import LocalStorage

MIB = 1 << 20


class InMemory(S3Storage):
    """A prefix of a bucket that lies in memory."""

    objects = {}  # noqa: RUF012  # by path; a subclass for each test

    def read(self, path):
        if path not in self.objects:
            raise ObjectMissingError(url=self.url, path=path)
        return self.objects[path]

    def read_span(self, path, start, end):
        return self.read(path)[start:end]


def bucket(objects, **methods):
    kind = type("Bucket", (InMemory,), {"objects": objects, **methods})
    return kind("s3://bucket/job")


def read(storage, sizes):
    come = []
    return list(objects_ahead(storage, sizes, come=come.append)), sum(come)


def test_objects_come_in_their_order_whole_and_are_counted(tmp_path):
    chance = random.Random(4)
    objects = {f"state/{n}": chance.randbytes(size) for n, size in enumerate((0, 5, 3 * MIB) * 9)}
    local = LocalStorage(str(tmp_path), is_synced=False)
    for path, data in objects.items():
        local.write(path, data)
    sizes = [(path, len(data)) for path, data in objects.items()]

    for storage in (local, bucket(objects)):
        assert read(storage, sizes) == (list(objects.values()), sum(size for _, size in sizes))
        assert read(storage, sizes[2:3]) == ([objects["state/2"]], 3 * MIB)
        assert read(storage, []) == ([], 0)


@pytest.mark.parametrize("size", [8 * MIB, 8 * MIB + 1, 16 * MIB, 25 * MIB])
def test_large_objects_are_asked_for_in_parts_and_come_whole(size):
    data = random.Random(size).randbytes(size)
    storage = bucket({"a": data, "b": b"next"})
    parts = list(parts_ahead(storage, [("a", size), ("b", 4)]))

    assert max(len(part) for _, part, _ in parts) <= 8 * MIB
    assert [index for index, _, _ in parts] == sorted(index for index, _, _ in parts)
    assert read(storage, [("a", size), ("b", 4)]) == ([data, b"next"], size + 4)


@pytest.mark.parametrize("found", [0, 9 * MIB - 1, 9 * MIB + 1, 30 * MIB])
def test_an_object_of_another_size_does_not_come_with_the_expected_one(found):
    storage = bucket({"a": bytes(found)})
    [data], _ = read(storage, [("a", 9 * MIB)])
    assert len(data) != 9 * MIB


def test_a_missing_object_is_told_and_what_came_before_has_come():
    storage = bucket({"a": b"1", "c": b"3"})
    coming = objects_ahead(storage, [("a", 1), ("b", 1), ("c", 1)], come=lambda _: None)

    assert next(coming) == b"1"
    with pytest.raises(ObjectMissingError) as caught:
        next(coming)
    assert caught.value.facts["path"] == "b"


def test_several_requests_are_under_way_at_a_time_also_for_one_object():
    together = threading.Barrier(4, timeout=20)

    def read_span(_, path, start, end):
        together.wait()
        return bytes(min(end, 32 * MIB) - start)

    [data], _ = read(bucket({}, read_span=read_span), [("a", 32 * MIB)])
    assert data == bytes(32 * MIB)


def test_a_part_that_gets_no_answer_is_asked_for_again_alone():
    asked = Counter()

    def one_span(_, path, start, end):
        asked[start] += 1
        if start == 8 * MIB and asked[start] == 1:
            raise ConnectionError
        return bytes(min(end, 30 * MIB) - start)

    kind = type("Flaky", (S3Storage,), {"_span": one_span})
    [data], _ = read(kind("s3://bucket/job"), [("a", 30 * MIB)])
    assert data == bytes(30 * MIB)
    assert asked == {0: 1, 8 * MIB: 2, 16 * MIB: 1, 24 * MIB: 1}


def test_what_is_asked_for_ahead_has_a_bound():
    asked = []

    def read_one(_, path):
        asked.append(path)
        return b""

    sizes = [(str(number), 8 * MIB) for number in range(100)]
    coming = parts_ahead(bucket({}, read=read_one), sizes)
    next(coming)
    coming.close()

    assert len(asked) <= 9


def test_threads_are_gone_when_nobody_reads_on():
    coming = parts_ahead(bucket({str(n): b"" for n in range(20)}), [(str(n), 0) for n in range(20)])
    next(coming)
    coming.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("bicycle-read-ahead")]
