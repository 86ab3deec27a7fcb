"""Savepoints and manifests that somebody made by hand touch nothing outside their directory."""

import contextlib
import json
import shutil
from collections import defaultdict
from dataclasses import replace
from zlib import crc32

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bicycle_runtime.base.errors import UnsafePathError
from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.base.storage_urls import open_storage
from bicycle_runtime.connectors.files.parts import PartPlan, carry_out
from bicycle_runtime.layouts.manifest import OperatorState
from bicycle_runtime.layouts.state import BaseIndex, SstRef
from bicycle_runtime.recovery.adoption import adopt, find_origin
from bicycle_runtime.recovery.copying import folder_of
from bicycle_runtime.recovery.errors import ManifestError, SavepointFormatError
from bicycle_runtime.recovery.history import EpochHistory
from bicycle_runtime.recovery.manifest import decode_manifest, encode_manifest
from bicycle_runtime.recovery.savepoints import (
    delete_savepoint,
    epoch_paths,
    read_savepoint,
    verify_savepoint,
    write_savepoint,
)
from bicycle_runtime.state.errors import StateFileError
from bicycle_runtime.state.sealed.bases import decode_index, encode_index
from bicycle_sdk.errors import BicycleError
from tests.examples import examples
from tests.unit.recovery.ledger_job import Job

MINE = b"mine"
EVIL = st.one_of(
    st.sampled_from(
        [
            "../outside/file", "../../outside/file", "OUTSIDE/file", "state/../../outside/file",
            "staged/../../outside/new", "connectors/../../outside/file", "state/link",
            "connectors/link", "link/file", "staged/link", "..", ".", "", "state//x", "job.json",
        ]
    ),
    st.lists(st.sampled_from(["..", ".", "", "state", "link", "outside", "file"])).map("/".join),
)  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return a savepoint of a job with three epochs."""
    folder = tmp_path_factory.mktemp("whole")
    job = Job(folder / "job")
    for epoch in (1, 2, 3):
        job.seal(job.run({epoch: epoch}), {epoch: epoch})
        job.ledger.mark_published(epoch)
    job.storage.write("connectors/in/journal/0", b"lines\n")
    job.storage.write("job.json", b'{"job": "job", "plugin": "p", "bundle_digest": "d"}')
    target = LocalStorage(str(folder / "savepoint"), is_synced=False)
    write_savepoint(job.storage, target, epoch=3, name="one", now_ms=77)
    return folder / "savepoint"


def with_path(data, number, path):
    """Return plain data in which one of the texts that are paths is another."""
    count = 0

    def walk(value):
        nonlocal count
        if isinstance(value, dict):
            return {key: walk(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [walk(item) for item in value]
        if isinstance(value, str) and "/" in value:
            count += 1
            return path if count == number + 1 else value
        return value

    return walk(data)


def craft_manifest(folder, number, path):
    """Change a path in the manifest, and let the savepoint describe the manifest rightly."""
    name = epoch_paths(3)[1]
    manifest = decode_manifest((folder / name).read_bytes(), path=name)
    plain = with_path(msgspec.to_builtins([manifest.states, manifest.sinks]), number, path)
    states = msgspec.convert(plain[0], type=dict[str, OperatorState])
    data = encode_manifest(replace(manifest, states=states, sinks=plain[1]))
    (folder / name).write_bytes(data)
    described = json.loads((folder / "savepoint.json").read_text())
    for file in described["files"]:
        if file["path"] == name:
            file |= {"byte_count": len(data), "crc32": crc32(data)}
    (folder / "savepoint.json").write_text(json.dumps(described))


def craft_description(folder, number, path):
    described = json.loads((folder / "savepoint.json").read_text())
    (folder / "savepoint.json").write_text(json.dumps(with_path(described, number, path)))


def craft_link(folder, number, path):
    """Put a link where a file was, and a link to a folder beside."""
    files = sorted(place for place in folder.rglob("*") if place.is_file())
    place = files[number % len(files)]
    place.unlink()
    place.symlink_to(folder.parent / "outside" / "file")
    (folder / "link").symlink_to(folder.parent / "outside")
    for room in ("state", "connectors", "staged"):
        with contextlib.suppress(OSError):
            (folder / room / "link").symlink_to(folder.parent / "outside" / "file")


def use(folder, target, *, is_far):
    """Do with a savepoint all that a job does."""
    source = LocalStorage(str(folder), is_synced=False)
    place = (
        open_storage(f"memory://crafted-{target.parent.parent.name}/{target.parent.name}/job")
        if is_far
        else LocalStorage(str(target), is_synced=False)
    )
    for act in (
        lambda: verify_savepoint(source),
        lambda: adopt(find_origin(source), place, job="other"),
        lambda: EpochHistory(source).retained(is_thorough=True),
        lambda: go_on(place, target),
        lambda: delete_savepoint(source),
    ):
        with contextlib.suppress(BicycleError):
            act()


def go_on(place, target):
    job = Job(target, retained=1, storage=place)
    job.models = defaultdict(dict)
    for epoch in (4, 5):
        job.seal(job.run({epoch: epoch}), {epoch: epoch})
        job.collect()


@pytest.mark.parametrize("is_far", [False, True])
def test_no_crafted_savepoint_reads_writes_or_removes_anything_outside(
    whole, tmp_path_factory, is_far
):
    @settings(max_examples=examples(60), deadline=None)
    @given(
        crafts=st.lists(
            st.tuples(
                st.sampled_from([craft_manifest, craft_description, craft_link]),
                st.integers(0, 8),
                EVIL,
            ),
            min_size=1,
            max_size=3,
        )
    )
    @example(crafts=[(craft_description, 0, "../outside/file")])
    @example(crafts=[(craft_manifest, 0, "../outside/file")])
    @example(crafts=[(craft_manifest, 1, "staged/../../outside/file")])
    @example(crafts=[(craft_link, 0, "")])
    def check(crafts):
        place = tmp_path_factory.mktemp("crafted")
        outside = place / "outside"
        outside.mkdir()
        (outside / "file").write_bytes(MINE)
        shutil.copytree(whole, place / "savepoint")
        # Links come last: what crafts would write through them.
        for craft, number, path in sorted(crafts, key=lambda each: each[0] is craft_link):
            with contextlib.suppress(BicycleError, FileExistsError, FileNotFoundError):
                craft(place / "savepoint", number, path.replace("OUTSIDE", str(outside)))

        use(place / "savepoint", place / "job", is_far=is_far)

        assert {path.name: path.read_bytes() for path in outside.iterdir()} == {"file": MINE}
        known = {"outside", "savepoint", "job", "job-local"}
        assert {path.name for path in place.iterdir()} <= known
        read = [p for p in (place / "job").rglob("*") if p.is_symlink() or is_mine(p)]
        assert read == []

    check()


def is_mine(path):
    return path.is_file() and path.read_bytes() == MINE


@pytest.mark.parametrize("path", ["../outside", "state/../../x", "/etc/passwd", "job.json", "a/b"])
def test_a_description_and_a_manifest_with_such_a_path_are_refused_before_anything_is_copied(
    whole, tmp_path, path
):
    for number, (craft, kind) in enumerate(
        [(craft_description, SavepointFormatError), (craft_manifest, ManifestError)]
    ):
        folder = tmp_path / str(number)
        shutil.copytree(whole, folder)
        craft(folder, 0 if craft is craft_manifest or path != "job.json" else 1, path)
        target = LocalStorage(str(tmp_path / f"job {number}"), is_synced=False)
        if craft is craft_description and path == "job.json":
            continue  # That one belongs there.

        with pytest.raises(kind) as caught:
            adopt(find_origin(LocalStorage(str(folder))), target, job="other")
        assert path in str(caught.value)
        assert target.list("") == []


def test_names_of_files_that_an_index_or_a_sink_gives_stay_in_their_folder(tmp_path):
    sst = SstRef(name="1.sst", path="state/op/1", byte_count=1, crc32=1)
    good = BaseIndex(epoch=1, groups=(0, 8), layout="2", ssts=(sst,), files={"CURRENT": b""})
    assert decode_index(encode_index(good), path="p", operator="op") == good
    for bad in (
        msgspec.structs.replace(good, files={"../CURRENT": b""}),
        msgspec.structs.replace(good, ssts=(msgspec.structs.replace(sst, name="/tmp/x"),)),
        msgspec.structs.replace(good, ssts=(msgspec.structs.replace(sst, path="../x"),)),
    ):
        with pytest.raises(StateFileError):
            decode_index(encode_index(bad), path="p", operator="op")
    plan = PartPlan(path=None, start=0, end=1, header="", files=(), name="../x")
    with pytest.raises(UnsafePathError):
        carry_out(plan, LocalStorage(str(tmp_path)), tmp_path / "out")


def test_a_folder_of_a_storage_is_below_it(tmp_path):
    for storage in (LocalStorage(str(tmp_path / "a")), open_storage("memory://folders/a")):
        with pytest.raises(UnsafePathError):
            folder_of(storage, "savepoints/../../b")


def test_a_manifest_under_the_name_of_another_epoch_is_put_aside_and_the_job_goes_on(tmp_path):
    job = Job(tmp_path, retained=5)
    for epoch in (1, 2):
        job.seal(job.run({epoch: epoch}), {epoch: epoch})
        job.ledger.mark_published(epoch)
    older, newer = "epochs/000000000001.manifest", "epochs/000000000003.manifest"
    job.storage.write(newer, job.storage.read(older))
    assert EpochHistory(job.storage).retained()[-1].damage

    last = job.restart()

    assert (last.manifest.epoch, [e.facts["path"] for e in last.damaged]) == (2, [newer])
    for epoch in (3, 4):
        job.seal(job.run({epoch: epoch}), {epoch: epoch})
    assert job.restart().manifest.epoch == 4
    assert job.read() == job.models[4]


def test_a_savepoint_whose_manifest_is_that_of_another_epoch_is_refused(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "savepoint")
    storage = LocalStorage(str(tmp_path / "savepoint"))
    path = epoch_paths(3)[1]
    manifest = decode_manifest(storage.read(path), path=path)
    storage.write(path, encode_manifest(replace(manifest, epoch=4)))

    assert read_savepoint(storage).epoch == 3
    with pytest.raises(ManifestError):
        find_origin(storage)
