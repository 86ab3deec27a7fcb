"""Storage behind a URL: the contract on a file system in memory, and what driver errors become."""

import random

import pytest

from bicycle_runtime.base.errors import (
    ATOMIC_CREATE_MISSING,
    STORAGE_ACCESS_DENIED,
    STORAGE_FULL,
    STORAGE_MISSING,
    ObjectExistsError,
    ObjectMissingError,
    StorageError,
    StorageUnreachableError,
)
from bicycle_runtime.base.remote_storage import FsspecStorage
from bicycle_runtime.base.storage import require_atomic_create
from bicycle_runtime.base.storage_urls import open_storage
from tests.raising import raises


@pytest.fixture
def storage(tmp_path):
    """A folder of the memory of this process; its name is new in each test."""
    return open_storage(f"memory://{tmp_path}", patience_s=0.5)


def test_objects_in_memory_keep_the_contract(storage):
    storage.write("a/b", b"1")
    storage.create("a/c", b"2")
    with storage.open_write("d") as stream:
        stream.write(b"3")
    with pytest.raises(KeyError), storage.open_write("never") as stream:
        stream.write(b"4")
        raise KeyError
    with pytest.raises(ObjectExistsError):
        storage.create("a/c", b"other")

    assert storage.list("") == ["a/b", "a/c", "d"]
    assert (storage.read("a/c"), storage.size("d"), storage.exists("a/x")) == (b"2", 1, False)
    assert storage.open_read("d").read() == b"3"
    with pytest.raises(ObjectMissingError):
        storage.read("nothing")
    storage.delete("d")
    storage.delete("d")
    storage.delete_tree("a")
    storage.delete_tree("a")
    assert storage.list("") == []
    require_atomic_create(storage, source=random.Random())


class Answer(Exception):
    """An error as the clients of clouds raise it, with what the server said."""

    def __init__(self, code, status):
        super().__init__(f"the server said {code}")
        self.response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}


def caused(error, cause):
    error.__cause__ = cause
    return error


class NoCredentialsError(Exception):
    pass


class EndpointConnectionError(ConnectionError):
    pass


PROBLEMS = [
    (FileNotFoundError("x"), ObjectMissingError),
    (caused(FileNotFoundError("x"), Answer("NoSuchBucket", 404)), STORAGE_MISSING),
    (caused(OSError(22, "x"), Answer("PreconditionFailed", 412)), ObjectExistsError),
    (FileExistsError("x"), ObjectExistsError),
    (PermissionError("x"), STORAGE_ACCESS_DENIED),
    (caused(OSError(5, "x"), Answer("Weird", 403)), STORAGE_ACCESS_DENIED),
    (NoCredentialsError("x"), STORAGE_ACCESS_DENIED),
    (caused(OSError(38, "x"), Answer("NotImplemented", 501)), ATOMIC_CREATE_MISSING),
    (OSError(28, "no space left"), STORAGE_FULL),
    (caused(OSError(5, "x"), Answer("StorageFull", 507)), STORAGE_FULL),
    (caused(OSError(16, "x"), Answer("SlowDown", 503)), StorageUnreachableError),
    (caused(OSError(16, "x"), Answer("ConditionalRequestConflict", 409)), StorageUnreachableError),
    (EndpointConnectionError("x"), StorageUnreachableError),
    (TimeoutError(), StorageUnreachableError),
    (ValueError("x"), StorageError),
]


@pytest.mark.parametrize(("error", "expected"), PROBLEMS)
def test_what_a_driver_raises_becomes_an_error_of_its_kind(error, expected):
    def fail():
        raise error

    with raises(expected) as caught:
        FsspecStorage("memory://x", 0).attempt("create", "path", fail)
    assert caught.value.code == expected.code
    assert caught.value.__cause__ is error
    assert caught.value.facts["url"] == "memory://x"


def test_what_may_pass_is_tried_again_until_it_does(storage):
    answers = [ConnectionResetError(), TimeoutError(), b"here"]

    def call():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert storage.attempt("read", "a", call) == b"here"


def test_what_does_not_pass_is_told_at_once(storage):
    calls = []

    def call():
        calls.append(1)
        raise PermissionError("no")

    with raises(STORAGE_ACCESS_DENIED):
        storage.attempt("read", "a", call)
    assert len(calls) == 1


def test_patience_ends(storage):
    calls = []

    def call():
        calls.append(1)
        raise ConnectionRefusedError("gone")

    with pytest.raises(StorageUnreachableError):
        storage.attempt("read", "a", call)
    assert 1 < len(calls) < 10


def test_words_of_a_driver_lose_the_credentials_in_them(storage):
    def call():
        raise ValueError("cannot open http://ada:se-cret@host/bucket")

    with pytest.raises(StorageError) as caught:
        storage.attempt("read", "a", call)
    assert "se-cret" not in str(caught.value)
    assert "http://host/bucket" in str(caught.value)
