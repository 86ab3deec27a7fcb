"""The book of epochs: sealed once, found again, collected only when nobody needs it."""

import random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from bicycle_runtime.base.faults import arm_fault, disarm_faults
from bicycle_runtime.base.storage import ObjectMissingError
from bicycle_runtime.contract import StagedFile
from bicycle_runtime.recovery.errors import NO_EPOCH_READABLE, EpochTakenError, ManifestError
from bicycle_runtime.recovery.history import EpochHistory
from bicycle_runtime.recovery.manifest import Manifest, decode_manifest, encode_manifest
from bicycle_runtime.state.sealed import bases
from tests.examples import examples
from tests.raising import raises
from tests.unit.recovery.ledger_job import GROUPS, PLAN, Job, hurt, sink_paths


def test_an_epoch_is_found_again_with_all_it_said(tmp_path):
    job = Job(tmp_path)
    assert job.restart() is None
    job.seal(job.run({1: 1}), {1: 1})
    sealed = job.manifest
    last = job.restart()

    assert last.manifest == sealed
    assert (last.is_published, last.damaged) == (False, ())
    job.ledger.mark_published(1)
    assert job.restart().is_published


def test_an_epoch_can_be_sealed_once(tmp_path):
    job = Job(tmp_path)
    manifest = job.run({1: 1})
    job.ledger.seal(manifest)

    with pytest.raises(EpochTakenError) as caught:
        Job(tmp_path / ".").ledger.seal(manifest)
    assert caught.value.facts == {"epoch": 1, "job": "job"}


@pytest.mark.parametrize("target", ["manifest", "state"])
@pytest.mark.parametrize("damage", ["cut", "flip", "empty"])
def test_a_damaged_epoch_falls_back_to_the_one_before_and_says_so(tmp_path, target, damage):
    job = Job(tmp_path, retained=5)
    for epoch in (1, 2, 3):
        job.seal(job.run({epoch: epoch}), {epoch: epoch})
    path = "epochs/000000000003.manifest" if target == "manifest" else job.state.files[-1].path
    hurt(job.storage, path, damage)
    last = job.restart()

    assert last.manifest.epoch == 2
    assert [error.facts["path"] for error in last.damaged] == ["epochs/000000000003.manifest"]
    assert job.read() == job.models[2]
    job.seal(job.run({3: 33}, attempt="again"), {3: 33})
    assert job.restart().manifest.epoch == 3
    assert job.read() == {1: 1, 2: 2, 3: 33}


@pytest.mark.parametrize("damage", ["cut", "flip", "empty"])
def test_epochs_with_a_file_that_a_task_found_damaged_are_put_aside(tmp_path, damage):
    job = Job(tmp_path, retained=5)
    for epoch in (1, 2, 3, 4):
        job.seal(job.run({epoch: epoch}), {epoch: epoch})
    path = job.state.files[-2].path
    hurt(job.storage, path, damage)
    job.ledger.doubt(path)

    assert job.sealed_epochs() == [1, 2]
    last = job.restart()
    assert (last.manifest.epoch, last.damaged) == (2, ())
    assert job.read() == job.models[2]


def test_a_file_that_a_task_could_not_read_but_that_is_whole_changes_nothing(tmp_path):
    job = Job(tmp_path, retained=5)
    for epoch in (1, 2):
        job.seal(job.run({epoch: epoch}), {epoch: epoch})
    for path in (job.state.files[-1].path, "state/nobody/knows.delta"):
        job.ledger.doubt(path)

    assert job.sealed_epochs() == [1, 2]


def test_a_damaged_file_of_all_epochs_is_told_and_nothing_is_put_aside(tmp_path):
    job = Job(tmp_path, retained=5)
    for epoch in (1, 2):
        job.seal(job.run({epoch: epoch}), {epoch: epoch})
    path = job.state.files[0].path
    hurt(job.storage, path, "flip")
    with raises(NO_EPOCH_READABLE) as caught:
        job.ledger.doubt(path)

    assert caught.value.facts["count"] == 2
    assert path in caught.value.facts["reason"]
    assert job.sealed_epochs() == [1, 2]


def test_a_missing_state_file_falls_back_too(tmp_path):
    job = Job(tmp_path)
    for epoch in (1, 2):
        job.seal(job.run({epoch: epoch}), {epoch: epoch})
    job.storage.delete(job.state.files[-1].path)

    assert job.restart().manifest.epoch == 1


def test_when_no_manifest_is_readable_nothing_is_started(tmp_path):
    job = Job(tmp_path)
    for epoch in (1, 2):
        job.seal(job.run({epoch: epoch}), {epoch: epoch})
        hurt(job.storage, f"epochs/{epoch:012}.manifest", "flip")

    with raises(NO_EPOCH_READABLE) as caught:
        job.restart()
    assert caught.value.facts["count"] == 2
    assert len(job.storage.list("epochs")) == 2  # both are left as they are, for a person to look


def sealed_paths(job):
    return [path for path in job.storage.list("epochs") if path.endswith(".manifest")]


ACTIONS = st.lists(
    st.sampled_from(["epoch", "epoch", "epoch", "collect", "crash before", "crash after", "restart",
                     "damage", "interval"]),
    max_size=40,
)  # fmt: skip


@pytest.fixture
def bases_at_each_interval(monkeypatch):
    """Let a base be worth while however little has changed."""
    monkeypatch.setattr(bases, "fold_start", lambda files, *, is_interval_over: is_interval_over)


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    actions=ACTIONS,
    retained=st.integers(2, 4),
    seed=st.integers(0, 10_000),
    backend=st.sampled_from(["memory", "memory", "rocksdb"]),
)
@example(
    actions=["epoch", "epoch", "epoch", "collect", "damage", "damage"],
    retained=2,
    seed=0,
    backend="memory",
)  # The last manifest that is left is never damaged: nothing could be restored.
def test_no_order_of_crashes_and_collections_removes_what_a_restart_needs(
    tmp_path_factory, bases_at_each_interval, actions, retained, seed, backend
):
    job = Job(tmp_path_factory.mktemp("job"), retained, backend=backend)
    chance = random.Random(seed)
    has_collected = True
    for number, action in enumerate(actions):
        entries = {chance.randrange(30): number for _ in range(3)}
        match action:
            case "collect":
                job.ledger.mark_published(job.manifest.epoch)
                job.ledger.collect()
            case "damage" if len(sealed_paths(job)) > 1:
                hurt(job.storage, f"epochs/{job.manifest.epoch:012}.manifest", "flip")
                job.restart()
            case _:
                job.act(action, entries, attempt=f"{number}")
        if action in ("epoch", "interval", "collect"):
            has_collected = action == "collect"
        assert job.read() == job.models[job.manifest.epoch]
        for path in sink_paths(job.manifest):
            job.storage.read(path)
    if has_collected and job.manifest.epoch:
        assert len(sealed_paths(job)) >= 1
    job.close()


@pytest.mark.parametrize("damage", ["cut", "flip", "empty"])
def test_a_damaged_part_of_a_base_is_found_and_the_epoch_before_it_counts(
    tmp_path, bases_at_each_interval, damage
):
    job = Job(tmp_path / "job", retained=5, backend="rocksdb")
    for number in range(1, 5):
        job.seal(job.run({number: number}, is_interval_over=number == 3), {number: number})
    base = job.state.files[0]
    hurt(job.storage, base.ssts[0].path, damage)
    found = EpochHistory(job.storage).retained(is_thorough=True)
    last = job.restart()

    assert base.is_database
    assert [epoch.epoch for epoch in found if epoch.damage] == [4]
    assert last.manifest.epoch == 3
    assert job.read() == job.models[3]
    job.close()


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
@pytest.mark.parametrize("fate", ["taken", "failed", "lost", "late"])
def test_nothing_is_left_of_bases_that_nobody_needs(
    tmp_path, bases_at_each_interval, backend, fate
):
    job = Job(tmp_path / "job", backend=backend)
    for number in range(1, 60):
        if fate == "failed" and number % 20 == 6:
            arm_fault("base_file_written")
        if fate == "lost" and number % 20 == 7:
            job.close()
            job.store.bases.begin = lambda *_: None
        if fate == "late" and number % 20 == 10:  # Somebody who was given up writes on.
            folder = f"state/op/00000-{GROUPS:05}/{number - 9:012}-a.base"
            job.storage.write(f"{folder}/{number}.sst", b"late")
        entries = {number % 7: number}
        job.seal(job.run(entries, is_interval_over=number % 5 == 0), entries)
        job.collect()
    disarm_faults()
    needed = set().union(*(manifest.state_paths() for manifest in job.ledger._retained))
    files = set(job.storage.list("state"))
    job.close()

    assert needed <= files
    if fate != "lost":  # Else a base is in the making.
        assert {path for path in files - needed if ".base/" in path} == set()
    assert job.read() == job.models[59]


def test_what_no_manifest_names_is_swept(tmp_path):
    job = Job(tmp_path)
    job.seal(job.run({1: 1}), {1: 1})
    job.run({2: 2}, attempt="dies")
    job.storage.write("staged/other/1/x", b"left behind")
    before = {*job.storage.list("state"), *job.storage.list("staged")}
    job.restart()
    after = {*job.storage.list("state"), *job.storage.list("staged")}

    assert after == job.manifest.state_paths() | sink_paths(job.manifest)
    assert len(before - after) == 3


def test_only_the_retained_epochs_stay_and_the_directory_does_not_grow(tmp_path):
    job = Job(tmp_path, retained=3)
    sizes = []
    for epoch in range(1, 120):
        job.seal(job.run({epoch % 20: epoch}), {epoch % 20: epoch})
        job.ledger.mark_published(epoch)
        job.ledger.collect()
        sizes.append(len(job.storage.list("")))

    manifests = [path for path in job.storage.list("epochs") if path.endswith(".manifest")]
    assert [int(path[7:19]) for path in manifests] == [117, 118, 119]
    assert max(sizes) < 40
    with pytest.raises(ObjectMissingError):
        job.storage.read("staged/sink/000000000001/a")


STAGED = st.builds(
    StagedFile,
    path=st.text("ab.", min_size=1).map("staged/f/x{}".format), record_count=st.integers(0, 9),
    byte_count=st.integers(0, 9), crc32=st.integers(0, 2**32 - 1), subtask=st.integers(0, 9),
    details=st.just({"target": 1}),
)  # fmt: skip
NAMES = st.text("abc-$.:é", min_size=1, max_size=6)
MANIFESTS = st.builds(
    Manifest,
    epoch=st.integers(1, 2**40),
    plan=st.just(PLAN),
    event_count=st.integers(0, 2**40),
    watermark_ms=st.integers(0, 2**40),
    offsets=st.dictionaries(
        NAMES, st.dictionaries(NAMES, st.integers(0, 2**60), min_size=1, max_size=2), max_size=2
    ),
    sinks=st.dictionaries(NAMES, st.dictionaries(NAMES, st.integers()), max_size=2),
    sources=st.dictionaries(NAMES, st.dictionaries(NAMES, st.text()), max_size=2),
    feedback=st.dictionaries(
        st.integers(0, 9), st.lists(STAGED, min_size=1, max_size=2).map(tuple), max_size=2
    ),
)


@given(MANIFESTS)
def test_a_manifest_comes_back_as_it_was(manifest):
    assert decode_manifest(encode_manifest(manifest), path="p") == manifest


@given(MANIFESTS, st.data())
def test_a_manifest_with_a_flipped_or_missing_byte_is_refused(manifest, data):
    whole = encode_manifest(manifest)
    position = data.draw(st.integers(0, len(whole) - 1))
    flipped = bytearray(whole)
    flipped[position] ^= 1 << data.draw(st.integers(0, 7))

    for damaged in (bytes(flipped), whole[:position]):
        with pytest.raises(ManifestError):
            decode_manifest(damaged, path="p")
