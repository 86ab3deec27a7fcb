"""Savepoints: whole or not there, never touched by the job, and a beginning for another one."""

import contextlib
import random
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bicycle_runtime.base.remote_storage import FsspecStorage
from bicycle_runtime.base.storage import LocalStorage, StorageError
from bicycle_runtime.base.storage_urls import open_storage
from bicycle_runtime.recovery.adoption import adopt, find_origin, refuse_unfinished_restore
from bicycle_runtime.recovery.copying import folder_of
from bicycle_runtime.recovery.errors import (
    CHECKPOINT_MISSING,
    CHECKPOINT_OCCUPIED,
    COPY_REFUSED,
    RESTORE_UNFINISHED,
    SAVEPOINT_TAKEN,
    SavepointFormatError,
    SavepointMissingError,
    SavepointUnfinishedError,
)
from bicycle_runtime.recovery.savepoints import (
    SavepointWriter,
    content_of,
    delete_savepoint,
    read_savepoint,
    verify_savepoint,
    write_savepoint,
)
from tests.examples import examples
from tests.raising import raises
from tests.unit.recovery.ledger_job import Job, hurt, sink_paths

NOW_MS = 1_000_000


@pytest.fixture
def job(tmp_path):
    """Three published epochs, and files of connectors."""
    job = Job(tmp_path / "job")
    for epoch in (1, 2, 3):
        job.seal(job.run({epoch: epoch}), {epoch: epoch})
        job.ledger.mark_published(epoch)
        job.ledger.collect(now_ms=NOW_MS)
    job.storage.write("connectors/in/journal/0", b"lines that nobody read yet\n")
    job.storage.write("job.json", b'{"job": "job", "plugin": "p", "bundle_digest": "d"}')
    return job


@pytest.fixture
def target(tmp_path):
    return LocalStorage(str(tmp_path / "savepoint"), is_synced=False)


def take(job, target, name="one"):
    return write_savepoint(job.storage, target, epoch=job.manifest.epoch, name=name, now_ms=77)


def everything(storage):
    return {path: storage.read(path) for path in storage.list("")}


def begun_with(storage, folder):
    """Return a job that begins with what lies in a storage."""
    place = LocalStorage(str(folder), is_synced=False)
    adopt(find_origin(storage), place, job="other")
    return Job(folder)


def test_a_savepoint_names_all_it_holds_and_has_the_layout_of_a_checkpoint(job, target):
    savepoint = take(job, target)

    paths = {file.path for file in savepoint.files}
    assert set(target.list("")) == paths | {"savepoint.json"}
    assert job.manifest.state_paths() | sink_paths(job.manifest) <= paths
    assert {"job.json", "connectors/in/journal/0"} <= paths
    assert {path for path in paths if path.startswith("epochs/")} == {
        "epochs/000000000003.manifest", "epochs/000000000003.published",
    }  # fmt: skip
    assert (savepoint.name, savepoint.epoch, savepoint.created_ms) == ("one", 3, 77)
    assert (savepoint.job, savepoint.plugin, savepoint.event_count) == ("job", "p", 3)
    assert savepoint.byte_count == sum(file.byte_count for file in savepoint.files)
    assert read_savepoint(target) == verify_savepoint(target) == savepoint


def test_of_a_plugin_that_was_replaced_since_only_the_name_is_told(job, target):
    job.storage.write(
        "job.json",
        b'{"plugin": "p", "plugin_version": "2", "graph": {"a": 1}, "bundle_digest": "another"}',
    )

    savepoint = take(job, target)

    assert (savepoint.plugin, savepoint.plugin_version, savepoint.graph) == ("p", "", None)
    assert savepoint.bundle_digest == "d"


def test_another_job_goes_on_where_the_savepoint_was_taken_without_the_old_one(
    job, target, tmp_path
):
    take(job, target)
    job.storage.delete_tree("")

    other = begun_with(target, tmp_path / "other")

    assert other.manifest == job.manifest
    assert other.read() == job.models[3]
    assert other.storage.read("connectors/in/journal/0") == b"lines that nobody read yet\n"
    assert other.ledger.last().is_published
    verify_savepoint(target)


def test_savepoints_behind_a_url_serve_jobs_on_a_disk_and_the_other_way_round(
    job, target, tmp_path
):
    url = open_storage(f"memory://savepoints-{tmp_path.name}/one")
    take(job, url)
    take(job, target)
    with raises(SAVEPOINT_TAKEN):
        take(job, url)

    assert verify_savepoint(url).files == verify_savepoint(target).files
    assert begun_with(url, tmp_path / "other").read() == job.models[3]
    far = open_storage(f"memory://savepoints-{tmp_path.name}/job")
    adopt(find_origin(target), far, job="far")
    assert find_origin(far).manifest == job.manifest
    assert content_of(far, 3).fixed == content_of(job.storage, 3).fixed
    delete_savepoint(url)
    assert url.list("") == []


def test_what_the_new_job_does_leaves_the_savepoint_alone(job, target, tmp_path):
    take(job, target)
    before = everything(target)
    other = begun_with(target, tmp_path / "other")
    other.models[3] = job.models[3]
    with other.storage.local_path("connectors/in/journal/0").open("ab") as journal:
        journal.write(b"more\n")
    for epoch in range(4, 40):
        other.seal(other.run({epoch: epoch}, is_interval_over=True), {epoch: epoch})
        other.ledger.mark_published(epoch)
        other.ledger.collect(now_ms=NOW_MS)

    assert everything(target) == before


def test_any_checkpoint_directory_offers_its_newest_published_epoch(job, tmp_path):
    job.seal(job.run({4: 4}), {4: 4})

    other = begun_with(job.storage, tmp_path / "other")

    assert other.manifest.epoch == 3
    assert other.read() == job.models[3]


def test_a_checkpoint_without_a_published_epoch_offers_nothing(tmp_path):
    job = Job(tmp_path / "job")
    with raises(CHECKPOINT_MISSING):
        find_origin(job.storage)
    job.seal(job.run({1: 1}), {1: 1})
    with raises(CHECKPOINT_MISSING):
        find_origin(job.storage)


def test_a_damaged_epoch_is_passed_over_when_a_job_begins_with_a_checkpoint(job):
    hurt(job.storage, "epochs/000000000003.manifest", "flip")

    assert find_origin(job.storage).manifest.epoch == 2


@pytest.mark.parametrize("there", ["savepoint.json", "savepoint.unfinished", "photo.jpg"])
def test_a_place_that_is_taken_is_left_alone(job, target, there):
    target.write(there, b"mine")

    with raises(SAVEPOINT_TAKEN):
        take(job, target)

    assert everything(target) == {there: b"mine"}


@pytest.mark.parametrize("is_finished", [False, True])
def test_of_two_savepoints_that_begin_at_once_in_one_place_one_is_made(
    job, tmp_path, monkeypatch, is_finished
):
    place = open_storage(f"memory://savepoints-{tmp_path.name}/race-{is_finished}")
    first = SavepointWriter(job.storage, place, epoch=3, name="first", now_ms=77)
    plain = FsspecStorage.list

    def list_before_the_first(storage, prefix):
        found = plain(storage, prefix)
        monkeypatch.setattr(FsspecStorage, "list", plain)
        first.begin()
        if is_finished:
            first.finish()
        return found

    monkeypatch.setattr(FsspecStorage, "list", list_before_the_first)
    with raises(SAVEPOINT_TAKEN):
        take(job, place, "second")
    if not is_finished:
        first.finish()

    assert verify_savepoint(place).name == "first"
    assert "savepoint.unfinished" not in place.list("")


@pytest.mark.parametrize("kind", ["state", "connectors"])
def test_a_savepoint_of_a_damaged_file_is_not_made_and_leaves_nothing(job, target, kind):
    [path, *_] = sorted(job.manifest.state_paths())
    if kind == "state":
        hurt(job.storage, path, "flip")
    else:
        job.storage.delete(path)

    with raises(COPY_REFUSED) as caught:
        take(job, target)

    assert caught.value.facts["path"] == path
    assert not target.local_path("").exists()


@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_every_damaged_file_of_a_savepoint_is_found(job, target, damage):
    for file in take(job, target).files:
        if not file.byte_count:
            continue
        data = target.read(file.path)
        changed = data[:-1] if damage == "cut" else bytes([data[0] ^ 1]) + data[1:]
        target.write(file.path, changed)
        with raises(COPY_REFUSED) as caught:
            verify_savepoint(target)
        assert caught.value.facts["path"] == file.path
        target.write(file.path, data)
    verify_savepoint(target)


@pytest.mark.parametrize("folder", ["connectors", "state"], ids=["copied", "linked"])
def test_a_job_does_not_begin_with_a_damaged_savepoint_and_stays_empty(
    job, target, tmp_path, folder
):
    take(job, target)
    path = min(path for path in target.list(folder))
    hurt(target, path, "flip")
    place = LocalStorage(str(tmp_path / "other"), is_synced=False)

    with raises(COPY_REFUSED) as caught:
        adopt(find_origin(target), place, job="other")

    assert (caught.value.facts["path"], caught.value.facts["url"]) == (path, target.url)
    assert place.list("epochs") == []
    with raises(RESTORE_UNFINISHED):
        refuse_unfinished_restore(place)


def test_a_savepoint_of_another_version_or_form_is_refused(job, target):
    take(job, target)
    facts = msgspec.json.decode(target.read("savepoint.json"))
    for data in (b"{", b"{}", msgspec.json.encode({**facts, "format_version": 9})):
        target.write("savepoint.json", data)
        with pytest.raises(SavepointFormatError):
            read_savepoint(target)


def test_only_savepoints_are_deleted(job, target):
    with pytest.raises(SavepointMissingError):
        delete_savepoint(job.storage)
    take(job, target)
    delete_savepoint(target)

    assert not target.local_path("").exists()
    assert job.restart().manifest.epoch == 3
    assert job.read() == job.models[3]


class StopError(Exception):
    """The process is killed here."""


class Mortal(LocalStorage):
    """Storage of a process that dies at its n-th change."""

    def _live(self):
        _changes["left"] -= 1
        if _changes["left"] < 0:
            raise StopError

    def write(self, path, data):
        self._live()
        super().write(path, data)

    def create(self, path, data):
        self._live()
        super().create(path, data)

    def open_write(self, path):
        self._live()
        return super().open_write(path)

    def delete(self, path):
        self._live()
        super().delete(path)


_changes = {"left": 0}


def mortal(storage, change_count):
    _changes["left"] = change_count
    return Mortal(storage.root, is_synced=False)


def test_a_crash_anywhere_leaves_no_savepoint_or_a_whole_one(job, tmp_path):
    outcomes = []
    for change_count in range(40):
        target = LocalStorage(str(tmp_path / f"crash-{change_count}"), is_synced=False)
        with contextlib.suppress(StopError):
            take(job, mortal(target, change_count))
        try:
            outcomes.append(verify_savepoint(target).epoch)
        except (SavepointMissingError, SavepointUnfinishedError):
            outcomes.append(None)
            if target.list(""):
                delete_savepoint(target)
                assert target.list("") == []
            take(job, target)
    whole_count = outcomes.count(3)
    assert outcomes == [None] * (40 - whole_count) + [3] * whole_count
    assert 0 < whole_count < 40


def test_a_crash_while_a_savepoint_is_deleted_never_leaves_half_of_one(job, tmp_path):
    for change_count in range(12):
        target = LocalStorage(str(tmp_path / f"crash-{change_count}"), is_synced=False)
        take(job, target)
        with contextlib.suppress(StopError):
            delete_savepoint(mortal(target, change_count))
        try:
            verify_savepoint(target)
        except (SavepointMissingError, SavepointUnfinishedError):
            if target.list(""):
                delete_savepoint(target)
        else:
            assert change_count < 3


def test_a_crash_anywhere_while_a_job_begins_leaves_no_checkpoint_or_a_whole_one(
    job, target, tmp_path
):
    take(job, target)
    outcomes = set()
    for change_count in range(40):
        folder = tmp_path / f"crash-{change_count}"
        place = LocalStorage(str(folder), is_synced=False)
        with contextlib.suppress(StopError):
            adopt(find_origin(target), mortal(place, change_count), job="other")
        if Job(folder).ledger.last() is None:
            outcomes.add("empty")
            if place.list(""):
                with raises(RESTORE_UNFINISHED):
                    refuse_unfinished_restore(place)
            adopt(find_origin(target), place, job="other")
        else:
            outcomes.add("whole")
        refuse_unfinished_restore(place)
        other = Job(folder)
        assert (other.manifest.epoch, other.read()) == (3, job.models[3])
        assert other.ledger.last().is_published
        with raises(CHECKPOINT_OCCUPIED):
            adopt(find_origin(target), place, job="other")
    assert outcomes == {"empty", "whole"}


def test_a_place_with_files_of_connectors_is_not_empty(job, target, tmp_path):
    take(job, target)
    place = LocalStorage(str(tmp_path / "other"), is_synced=False)
    place.write("connectors/in/journal/0", b"received, not read\n")

    with raises(CHECKPOINT_OCCUPIED):
        adopt(find_origin(target), place, job="other")

    assert everything(place) == {"connectors/in/journal/0": b"received, not read\n"}


def test_files_that_wait_for_their_part_go_along_wherever_a_memo_names_them(job):
    held = {"path": "staged/sink/9/held", "bytes": 4, "crc32": 1}
    manifest = job.run({9: 9})
    state = {"open": {"held": [held]}, "plans": [{"files": [{"path": "staged/sink/9/gone"}]}]}
    job.ledger.seal(replace(manifest, sinks={**manifest.sinks, "parts": state}))
    job.storage.write(held["path"], b"data")

    content = content_of(job.storage, manifest.epoch)

    [found] = [file for file in content.fixed if file.path == held["path"]]
    assert (found.byte_count, found.crc32) == (4, 1)
    assert "staged/sink/9/gone" not in {file.path for file in content.fixed}


def test_a_savepoint_is_copied_while_the_job_goes_on(job, target):
    writer = SavepointWriter(job.storage, target, epoch=3, name="one", now_ms=1)
    with job.ledger.holding(3):
        writer.begin()
        for epoch in range(4, 20):
            job.seal(job.run({epoch: epoch}, is_interval_over=True), {epoch: epoch})
            job.ledger.mark_published(epoch)
            job.ledger.collect(now_ms=NOW_MS)
        writer.finish()
    job.ledger.collect(now_ms=NOW_MS)

    assert verify_savepoint(target).epoch == 3
    assert len([path for path in job.storage.list("epochs") if path.endswith("manifest")]) == 2


def test_a_storage_that_refuses_leaves_nothing_of_a_savepoint(job, target):
    class Full(LocalStorage):
        def open_write(self, path):
            raise StorageError(url=self.root, action="write", path=path, reason="disk full")

    with pytest.raises(StorageError):
        take(job, Full(target.root, is_synced=False))
    assert target.list("") == []


ACTIONS = st.lists(
    st.sampled_from(
        ["epoch", "epoch", "epoch", "interval", "collect", "crash before", "crash after",
         "restart", "savepoint", "slow savepoint", "delete", "move"]
    ),
    max_size=30,
)  # fmt: skip


@settings(max_examples=examples(60), deadline=None)
@given(actions=ACTIONS, seed=st.integers(0, 10_000))
def test_no_order_of_crashes_collections_savepoints_and_restores_removes_what_is_needed(
    tmp_path_factory, actions, seed
):
    folder = tmp_path_factory.mktemp("jobs")
    job, chance = Job(folder / "job-0"), random.Random(seed)
    savepoints = []  # storage and what the state was
    for number, action in enumerate(actions):
        entries = {chance.randrange(30): number for _ in range(3)}
        match action:
            case "collect" if job.manifest.epoch:
                job.ledger.mark_published(job.manifest.epoch)
                job.ledger.collect(now_ms=NOW_MS)
            case "savepoint" | "slow savepoint" if job.manifest.epoch:
                savepoints.append(saved(job, number, entries, is_slow=action != "savepoint"))
            case "delete" if savepoints:
                delete_savepoint(savepoints.pop(chance.randrange(len(savepoints)))[0])
            case "move" if savepoints:
                storage, epoch, model = chance.choice(savepoints)
                job = begun_with(storage, folder / f"job-{number}")
                job.models = {epoch: model}
            case _:
                job.act(action, entries, attempt=f"{number}")
        assert job.read() == job.models[job.manifest.epoch]
        for storage, epoch, _ in savepoints:
            assert verify_savepoint(storage).epoch == epoch
    for number, (storage, epoch, model) in enumerate(savepoints):
        other = begun_with(storage, folder / f"end-{number}")
        assert (other.manifest.epoch, other.read()) == (epoch, model)


def saved(job, number, entries, *, is_slow):
    """Take a savepoint; with ``is_slow`` the job seals and collects while its files are copied."""
    epoch, model = job.manifest.epoch, job.models[job.manifest.epoch]
    job.ledger.mark_published(epoch)
    storage = folder_of(job.storage, f"savepoints/{number}")
    writer = SavepointWriter(job.storage, storage, epoch=epoch, name=str(number), now_ms=number)
    with job.ledger.holding(epoch):
        writer.begin()
        for step in range(4 if is_slow else 0):
            name = f"{number}-{step}"
            job.seal(job.run(entries, attempt=name, is_interval_over=True), entries)
            job.ledger.mark_published(job.manifest.epoch)
            job.ledger.collect(now_ms=NOW_MS)
        writer.finish()
    return storage, epoch, model
