"""Files that look like one another: which of them is the one that was read."""

import logging
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bicycle_runtime.connectors.errors import INPUT_CHANGED
from bicycle_runtime.connectors.files.identity import (
    FileIdentity,
    find_file,
    identify,
    with_tail,
)
from bicycle_runtime.contract import Budget, ConnectorSpec
from bicycle_runtime.testing.connectors.running import SourceRun, services_in, values_of
from tests.examples import examples
from tests.raising import raises

HEADER = "".join(f"# the same header in each file, line {number}\n" for number in range(20))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


@pytest.fixture
def run(tmp_path, folder):
    spec = ConnectorSpec(
        vertex_id="lines",
        connector_type="text",
        properties={"path": str(folder), "follow": True},
    )
    run = SourceRun(spec, services_in(tmp_path)).start()
    yield run
    run.stop()


def read(run):
    run.services.clock.advance(1_000)
    return [line for line in values_of(run.drain()) if not line.startswith("#")]


def identity_of(path):
    with path.open("rb") as stream:
        return identify(stream.fileno())


def reused(path, other, text):
    """Give the inode of a file to another name and other content, as a file system may."""
    with path.open("r+") as stream:
        stream.truncate()
        stream.write(text)
    path.rename(other)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_new_file_with_the_inode_and_first_block_of_a_removed_one_is_read_whole(
    folder, run, restarts
):
    old, new = folder / "old.log", folder / "new.log"
    old.write_text(HEADER + "one\n")
    assert read(run) == ["one"]
    reused(old, new, HEADER + "two\nthree\n")
    if restarts:
        run.restart()

    assert read(run) == ["two", "three"]
    assert read(run) == []


def test_an_epoch_that_went_on_in_a_file_knows_it_by_what_it_read(folder, run):
    old, new = folder / "old.log", folder / "new.log"
    old.write_text(HEADER + "one\n")
    assert read(run) == ["one"]
    with old.open("a") as stream:
        stream.write("two\n")
    assert read(run) == ["two"]
    reused(old, new, HEADER + "one\nTWO\nthree\n")

    assert read(run) == ["one", "TWO", "three"]


def test_a_file_cut_in_place_that_grew_past_the_offset_is_read_from_its_start(folder, run, caplog):
    path = folder / "x.log"
    path.write_text(HEADER + "one\n")
    assert read(run) == ["one"]

    with caplog.at_level(logging.WARNING), path.open("r+") as stream:
        stream.truncate()  # As `copytruncate` of logrotate does it.
        stream.write(HEADER + "two\nthree\n")
        stream.flush()
        assert read(run) == ["two", "three"]
    assert "input_file_replaced" in caplog.messages


def test_another_birth_tells_a_reused_inode_where_all_that_was_read_is_equal(folder):
    old, new = folder / "old.log", folder / "new.log"
    new.write_text("one\ntwo\n")
    identity = with_tail(str(new), identity_of(new), 4)
    born_before = replace(identity, birth_ns=1)

    assert find_file(str(old), identity) == (str(new), identity)
    assert find_file(str(old), replace(identity, birth_ns=None)) == (str(new), identity)
    if identity.birth_ns is not None:  # Not every file system keeps it.
        assert find_file(str(old), born_before) is None
    assert find_file(str(new), born_before) == (str(new), identity)


def test_a_file_that_is_shorter_than_the_offset_is_another_one(folder):
    path = folder / "x.log"
    path.write_text("one\ntwo\n")
    identity = identity_of(path)

    assert find_file(str(path), identity, size_min=8) is not None
    assert find_file(str(path), identity, size_min=9) is None


@pytest.mark.parametrize("is_renamed", [False, True])
def test_a_position_of_an_earlier_version_goes_on_and_gets_what_it_lacks(folder, run, is_renamed):
    path = folder / "x.log"
    path.write_text(HEADER + "one\n")
    assert read(run) == ["one"]
    (shard,) = run.state["files"]
    assert len(run.state["files"][shard]) == 11
    run.state["files"][shard] = run.state["files"][shard][:7]  # As version 0.1 wrote it.
    with path.open("a") as stream:
        stream.write("two\n")
    if is_renamed:
        path.rename(folder / "x.log.1")
    run.restart()

    assert read(run) == ["two"]
    assert FileIdentity.from_json([0, 0, 0]).tail_end == 0
    *_, tail_end, tail_byte_count, _ = run.state["files"][shard]
    assert tail_end == tail_byte_count == len(HEADER + "one\ntwo\n")


@settings(max_examples=examples(60), deadline=None)
@given(
    before=st.binary(min_size=1, max_size=9_000),
    more=st.binary(max_size=300),
    place=st.integers(min_value=1, max_value=4_096),
)
def test_a_file_is_known_while_it_grows_and_not_once_what_was_read_last_is_another(
    tmp_path_factory, before, more, place
):
    path = tmp_path_factory.mktemp("files") / "x"
    path.write_bytes(before)
    identity = with_tail(str(path), identity_of(path), len(before))
    path.write_bytes(before + more)

    found = find_file(str(path), identity)
    assert found is not None
    assert FileIdentity.from_json(found[1].to_json()) == found[1]
    changed = bytearray(before + more)
    changed[max(len(before) - place, 0)] ^= 1
    path.write_bytes(bytes(changed))

    assert find_file(str(path), identity) is None


def test_what_a_slice_says_of_its_file_is_checked_by_its_reader(folder, run):
    path = folder / "x.log"
    path.write_text(HEADER + "one\n")
    assert read(run) == ["one"]
    with path.open("a") as stream:
        stream.write("two\n")
    run.services.clock.advance(1_000)
    run.source.poll()
    (part,) = run.source.plan(Budget(record_count=10, byte_count=9_000, parallelism=1))
    with path.open("r+") as stream:
        stream.write(HEADER + "six\n")

    with raises(INPUT_CHANGED):
        list(run.reader.read(part))
