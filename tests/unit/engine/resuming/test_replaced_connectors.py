"""Sources and sinks that have another connector under the same uid: a removed one and a new one."""

from dataclasses import replace
from functools import partial

import pytest

from bicycle_runtime.connectors.registry import ConnectorRegistry
from bicycle_runtime.engine.resuming.restoring import without_replaced
from bicycle_runtime.layouts.manifest import PlanRecord, ShardTime, TimeRecord
from bicycle_runtime.recovery.errors import STATE_LOST
from bicycle_runtime.recovery.manifest import Manifest, decode_manifest, encode_manifest
from bicycle_runtime.testing import bundle_of
from bicycle_sdk import StreamEnvironment
from bicycle_sdk.connectors import file_sink
from bicycle_sdk.sinks import parquet_sink
from tests.raising import raises
from tests.unit.engine.loop.test_epoch_loop import WORDS, Driver, losing

FIRST = "epochs/000000000001"
EMPTY = Manifest(epoch=1, plan=PlanRecord(bundle_digest="d", parallelism={}, now_ms=1))


def job(env, folder, kind):
    rows = env.from_collection(WORDS).uid("words").map(lambda word: {"word": word})
    match kind:
        case "files":
            rows.sink_to(file_sink(str(folder / "out"), format="jsonl")).uid("out")
        case "parquet":
            rows.sink_to(parquet_sink(str(folder / "out"), columns={"word": "str"})).uid("out")
        case "collect":
            rows.collect("out").uid("out")


def lines(folder):
    parts = (folder / "out").glob("part-*.jsonl")
    return [line for path in parts for line in path.read_text().splitlines()]


@pytest.mark.parametrize("is_published", [True, False])
def test_a_sink_that_has_output_to_publish_is_not_replaced_by_another(tmp_path, is_published):
    driver = Driver(tmp_path / "checkpoint")
    with driver.loop(partial(job, folder=tmp_path, kind="files")) as loop:
        loop.step()
    if not is_published:
        driver.storage.delete(f"{FIRST}.published")
    before = driver.storage.list("")
    other = partial(job, folder=tmp_path, kind="collect")

    with raises(STATE_LOST) as caught:
        driver.run(other)
    assert caught.value.facts["lost"] == (
        "'out' (with unpublished output; of connector 'jsonl_file', now 'collect')"
    )
    assert (caught.value.facts["instead"], driver.storage.list("")) == ("", before)

    driver.run(partial(job, folder=tmp_path, kind="files"))
    assert len(lines(tmp_path)) == len(WORDS)
    driver.run(other)
    assert driver.collected["out"] == []


def test_output_of_a_replaced_sink_is_given_up_where_that_is_allowed(tmp_path):
    driver = Driver(tmp_path / "checkpoint")
    with driver.loop(partial(job, folder=tmp_path, kind="files")) as loop:
        loop.step()
    driver.storage.delete(f"{FIRST}.published")

    driver.run(partial(job, folder=tmp_path, kind="parquet"), change=losing)
    assert (lines(tmp_path), driver.storage.list("staged")) == ([], [])


def test_a_sink_that_has_published_all_is_replaced_and_lasts(tmp_path):
    driver = Driver(tmp_path / "checkpoint")
    driver.run(partial(job, folder=tmp_path, kind="files"))

    driver.run(partial(job, folder=tmp_path, kind="parquet"))
    driver.run(partial(job, folder=tmp_path, kind="files"))
    assert len(lines(tmp_path)) == len(WORDS)


def test_a_source_of_another_connector_does_not_get_the_offsets(tmp_path):
    def build(env, *, is_file):
        path = str(tmp_path / "in.txt")
        words = env.read_text(path) if is_file else env.from_collection(["c"])
        words.uid("words").collect("out")

    (tmp_path / "in.txt").write_text("a\nb\n")
    driver = Driver(tmp_path / "checkpoint")
    driver.run(partial(build, is_file=True))
    driver.run(partial(build, is_file=True))
    assert driver.collected["out"] == ["a", "b"]

    with raises(STATE_LOST, match="'words' \\(of connector 'text', now 'collection'\\)"):
        driver.run(partial(build, is_file=False))
    driver.run(partial(build, is_file=False), change=losing)
    assert driver.collected["out"] == ["a", "b", "c"]


def test_a_manifest_of_an_earlier_version_has_no_words_and_is_continued(tmp_path):
    driver = Driver(tmp_path / "checkpoint")
    with driver.loop(partial(job, folder=tmp_path, kind="files")) as loop:
        loop.step()
    path = f"{FIRST}.manifest"
    sealed = decode_manifest(driver.storage.read(path), path=path)
    assert sealed.connectors == {"words": "collection", "out": "jsonl_file"}
    data = encode_manifest(replace(sealed, connectors={}))
    assert b"bicycle.connector" not in data
    driver.storage.write(path, data)

    driver.run(partial(job, folder=tmp_path, kind="files"))
    assert len(lines(tmp_path)) == len(WORDS)


def test_the_times_of_a_replaced_source_go_with_its_offsets(tmp_path):
    env = StreamEnvironment()
    job(env, tmp_path, "files")
    old = ShardTime(watermark_ms=1)
    shards = {"words": {"a": old}, "marks": {"words: a": old, "more: a": old}}
    sealed = replace(
        EMPTY, time=TimeRecord(shards=shards),
        connectors={"words": "kafka"}, offsets={"words": {"a": 1}},
    )  # fmt: skip

    left = without_replaced(sealed, bundle_of(env).graph)
    assert (left.offsets, left.time.shards) == ({}, {"marks": {"more: a": old}})


def test_a_connector_that_is_known_by_its_former_word_too_is_the_same():
    registry = ConnectorRegistry({"old": "m:A", "new": "m:A", "other": "m:B", "socket": "m:C"}, {})

    assert registry.is_same("old", "new")
    assert registry.is_same("socket_stream", "socket")
    assert registry.is_same("gone", "gone")
    assert not registry.is_same("old", "other")
    assert not registry.is_same("gone", "new")
