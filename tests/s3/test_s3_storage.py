"""Checkpoint storage in S3, against a real server: every method, and every way to fail."""

from __future__ import annotations

import pickle
import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from bicycle_runtime.base import remote_storage
from bicycle_runtime.base.errors import (
    ATOMIC_CREATE_MISSING,
    STORAGE_ACCESS_DENIED,
    STORAGE_DRIVER_MISSING,
    STORAGE_MISSING,
    ObjectExistsError,
    ObjectMissingError,
    StorageUnreachableError,
)
from bicycle_runtime.base.storage import delete_all, require_atomic_create
from bicycle_runtime.base.storage_urls import open_storage
from bicycle_sdk.errors import ConfigError
from tests.raising import raises
from tests.s3.s3_server import KEY, SECRET

MIB = 1 << 20


@pytest.mark.core
def test_objects_are_written_read_measured_listed_and_deleted(storage):
    storage.write("epochs/1", b"one")
    storage.write("epochs/1", b"one again")
    storage.write("epochs/2", b"")
    storage.write("state/a/b", b"x")

    assert storage.read("epochs/1") == b"one again"
    assert (storage.size("epochs/1"), storage.size("epochs/2")) == (9, 0)
    assert storage.exists("epochs/1")
    assert not storage.exists("epochs")
    assert storage.list("epochs") == ["epochs/1", "epochs/2"]
    assert storage.list("") == ["epochs/1", "epochs/2", "state/a/b"]
    assert storage.list("nothing") == storage.list("epo") == []
    storage.delete("epochs/1")
    storage.delete("epochs/1")
    delete_all(storage, ["epochs/1", "epochs/2", "nothing"])
    assert storage.list("") == ["state/a/b"]
    storage.delete_tree("state")
    storage.delete_tree("state")
    assert storage.list("") == []


def test_what_is_not_there_is_missing(storage):
    for look in (storage.read, storage.size, storage.open_read):
        with pytest.raises(ObjectMissingError) as caught:
            look("a/b")
        assert caught.value.facts == {"url": storage.url, "path": "a/b"}


@pytest.mark.parametrize("size", [0, 1, 8 * MIB - 1, 8 * MIB, 8 * MIB + 1, 17 * MIB])
def test_streams_of_any_length_come_back(storage, size):
    data = random.Random(size).randbytes(size)
    with storage.open_write("stream") as stream:
        for start in range(0, size, 3 * MIB):
            stream.write(data[start : start + 3 * MIB])
    with storage.open_read("stream") as stream:
        assert stream.read(10) == data[:10]
        assert stream.read() == data[10:]
    assert storage.read("stream") == data
    assert storage.discard_unfinished("") == 0


@pytest.mark.parametrize("size", [8 * MIB, 8 * MIB + 1, 35 * MIB])
def test_a_large_object_is_sent_in_parts_and_comes_back_whole(storage, asked, size):
    data = random.Random(size).randbytes(size)
    storage.write("state/large", b"an older one")
    asked.clear()
    storage.write("state/large", data)
    sent = Counter(asked)

    part_count = 0 if size <= 8 * MIB else -(-size // (8 * MIB))
    assert (sent["PutObject"], sent["UploadPart"]) == (int(part_count == 0), part_count)
    assert storage.read("state/large") == data
    assert storage.discard_unfinished("") == 0


def test_bytes_that_changed_on_the_server_are_left_to_the_checksums_of_who_reads(
    storage, server, bucket
):
    storage.write("a", b"hello")
    path = server.buckets / bucket / "jobs/wordcount/a"
    path.write_bytes(b"hexlo")
    assert storage.read("a") == storage.open_read("a").read() == b"hexlo"


def test_a_stream_that_is_broken_off_never_appears(storage):
    for size in (10, 9 * MIB):
        with pytest.raises(KeyError), storage.open_write("stream") as stream:
            stream.write(bytes(size))
            assert not storage.exists("stream")
            raise KeyError
    assert storage.list("") == []
    assert storage.discard_unfinished("") == 0


def test_uploads_of_killed_writers_are_discarded_in_their_folder(storage):
    for path in ("staged/a", "staged/b", "state/c"):
        writing = storage.open_write(path)
        writing.__enter__().write(bytes(9 * MIB))  # Nobody ever leaves: the writer was killed.

    assert storage.list("") == []
    assert storage.discard_unfinished("staged") == 2
    assert storage.discard_unfinished("staged") == 0
    assert storage.discard_unfinished("") == 1


@pytest.mark.core
def test_of_many_concurrent_creators_one_wins(storage):
    barrier = threading.Barrier(12)

    def create(number):
        barrier.wait()
        try:
            storage.create("one", str(number).encode())
        except ObjectExistsError:
            return None
        return number

    for _ in range(5):
        with ThreadPoolExecutor(12) as pool:
            winners = [number for number in pool.map(create, range(12)) if number is not None]
        assert [storage.read("one")] == [str(number).encode() for number in winners]
        storage.delete("one")


def test_a_create_whose_answer_was_lost_is_ours_when_the_bytes_are(storage):
    storage.create("one", b"our bytes, with a random part")
    storage.create("one", b"our bytes, with a random part")  # The second request of one call.
    with pytest.raises(ObjectExistsError):
        storage.create("one", b"other bytes")


def test_more_than_a_thousand_objects_are_listed_and_deleted(server, bucket):
    storage = open_storage(f"s3://{bucket}/many")
    folder = server.root / "data" / bucket / "many/state"
    folder.mkdir(parents=True)
    for number in range(1_203):
        (folder / f"{number:05}").write_bytes(b"x")

    assert len(storage.list("state")) == 1_203
    storage.delete_tree("state")
    assert storage.list("") == []


def test_a_server_with_an_atomic_create_is_accepted_and_nothing_is_left(storage):
    require_atomic_create(storage, source=random.Random())
    assert storage.list("") == []


def test_a_missing_bucket_is_told(server):
    storage = open_storage("s3://no-such-bucket/job", patience_s=2)
    acts = (
        lambda: storage.write("a", b""),
        lambda: storage.create("a", b""),
        lambda: storage.read("a"),
        lambda: storage.list("a"),
        lambda: storage.open_write("a").__enter__().write(bytes(9 * MIB)),
        lambda: require_atomic_create(storage, source=random.Random()),
    )
    for act in acts:
        with raises(STORAGE_MISSING) as caught:
            act()
        assert caught.value.facts["url"] == "s3://no-such-bucket/job"


def test_refused_credentials_are_told_without_showing_them(server, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-secret")
    server.make_bucket("refused")
    storage = open_storage("s3://refused/job", patience_s=2)
    acts = (
        lambda: storage.write("a", b""),
        lambda: storage.create("a", b""),
        lambda: storage.read("a"),
        lambda: storage.exists("a"),
        lambda: storage.list("a"),
        lambda: storage.delete("a"),
        lambda: delete_all(storage, ["a", "b"]),
        lambda: storage.discard_unfinished("a"),
    )
    for act in acts:
        with raises(STORAGE_ACCESS_DENIED) as caught:
            act()
        shown = str(caught.value) + repr(caught.value.to_json())
        assert not any(secret in shown for secret in ("another-secret", SECRET, KEY))


def test_missing_credentials_are_told(server, monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    server.make_bucket("nobody")
    with raises(STORAGE_ACCESS_DENIED):
        open_storage("s3://nobody/job", patience_s=2).write("a", b"")


def test_a_url_with_credentials_is_refused_without_showing_them():
    for url in ("s3://ada:se-cret@bucket/job", "s3://ada@bucket/job", "ftp://ada:se-cret@host/x"):
        with pytest.raises(ConfigError) as caught:
            open_storage(url)
        assert "se-cret" not in str(caught.value)
        assert "ada" not in str(caught.value)


def test_a_scheme_without_a_driver_is_told():
    with raises(STORAGE_DRIVER_MISSING) as caught:
        open_storage("nosuch://place/job").read("a")
    assert caught.value.facts["url"] == "nosuch://place/job"


def test_a_short_outage_is_waited_for(server, bucket):
    storage = open_storage(f"s3://{bucket}/job", patience_s=60)
    storage.write("before", b"1")
    server.kill()
    starting = threading.Timer(1.0, server.start)
    starting.start()
    storage.create("during", b"2")
    starting.join()

    assert (storage.read("before"), storage.read("during")) == (b"1", b"2")


def test_a_server_that_is_gone_is_told_and_what_was_there_is_there_again(server, storage):
    storage.write("before", b"1")
    server.kill()
    acts = (
        lambda: storage.write("a", b""),
        lambda: storage.write("a", bytes(9 * MIB)),
        lambda: storage.create("a", b""),
        lambda: storage.read("before"),
        lambda: storage.exists("before"),
        lambda: storage.list(""),
        lambda: storage.delete("before"),
    )
    for act in acts:
        with pytest.raises(StorageUnreachableError) as caught:
            act()
        assert caught.value.facts["url"] == storage.url
    server.start()
    assert storage.list("") == ["before"]


def test_a_server_that_goes_in_the_middle_of_a_stream_leaves_no_object(server, storage):
    with pytest.raises(StorageUnreachableError), storage.open_write("stream") as stream:
        stream.write(bytes(9 * MIB))
        server.kill()
        stream.write(bytes(9 * MIB))
    server.start()
    assert storage.list("") == []
    assert storage.discard_unfinished("") == 1


def test_a_server_that_goes_in_the_middle_of_reading_is_told(server, storage):
    storage.write("big", bytes(20 * MIB))
    with storage.open_read("big") as stream:
        stream.read(MIB)
        server.kill()
        with pytest.raises(StorageUnreachableError):
            stream.read()


def test_a_process_opens_one_client_for_all_threads_and_travels_as_a_url(storage):
    remote_storage._systems.clear()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: storage.write(f"a/{n}", b""), range(32)))
    assert len(remote_storage._systems) == 1
    copy = pickle.loads(pickle.dumps(storage))
    assert copy == storage
    assert len(copy.list("a")) == 32
    assert len(remote_storage._systems) == 1


class Forgetful:
    """A storage whose create looks and then writes: what servers without conditions do."""

    url = "forgetful"

    def __init__(self, *, is_checked):
        self.objects = {}
        self.is_checked = is_checked
        self.barrier = threading.Barrier(4)

    def create(self, path, data):
        is_there = path in self.objects
        if path.endswith("-2") and not is_there:
            self.barrier.wait(5)
        if self.is_checked and is_there:
            raise ObjectExistsError(url=self.url, path=path)
        self.objects[path] = data

    def delete(self, path):
        self.objects.pop(path, None)


@pytest.mark.parametrize("is_checked", [False, True])
def test_a_storage_without_an_atomic_create_is_refused(is_checked):
    storage = Forgetful(is_checked=is_checked)
    with raises(ATOMIC_CREATE_MISSING) as caught:
        require_atomic_create(storage, source=random.Random())
    assert caught.value.facts["url"] == "forgetful"
    assert storage.objects == {}
