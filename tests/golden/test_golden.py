"""Checkpoints and savepoints of every release so far are restored, and nothing else comes out."""

import json
import os
import zipfile
from pathlib import Path

import pytest

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.layouts.state import UNTYPED
from bicycle_runtime.records.readable import readable
from bicycle_runtime.recovery.history import EpochHistory
from bicycle_runtime.recovery.savepoints import verify_savepoint
from tests.golden.jobs import JOBS
from tests.golden.write import BACKENDS, FOLDER, opened, sealed, write

RELEASES = sorted(path.name for path in FOLDER.iterdir() if path.name[0].isdigit())
FOLDERS = [FOLDER / release for release in RELEASES]
# What another interpreter wrote with the code of now; see write.py.
FOLDERS += [Path(name) for name in [os.environ.get("BICYCLE_GOLDEN")] if name]
PACKED = sorted(path for folder in FOLDERS for path in folder.glob("*.zip"))
SAVEPOINTS = [path for path in PACKED if ".savepoint." in path.name]


# What was published or kept before a checkpoint stays. By job and sink: now, and then.
# Until 0.1.0 the watermark was 1 ms further, and a session fired though a record at its end could
# still come (key c); and a record that touches an ended session opened another one (key b).
BEFORE_THE_RELEASE = {"0.1.0", "0.1.0-python3.12"}
KEPT_BEFORE = {
    ("windows", "sessions"): [
        (
            '{"key": "c", "start": 4000, "end": 23000, "value": 10.833333333333334}',
            '{"key": "c", "start": 8000, "end": 23000, "value": 13.5}',
        ),
        (
            '{"key": "b", "start": 12000, "end": 22000, "value": 14.333333333333334}',
            '{"key": "b", "start": 9000, "end": 22000, "value": 13.0}',
        ),
    ],
    ("windows", "cut"): [
        ("[2, [17]]", "[2, [8, 14, 15, 17]]"),
        ("[2, [12, 15, 16]]", "[2, [9, 12, 15, 16]]"),
    ],
}


def told(path):
    return f"{path.parent.name}/{path.stem}"


@pytest.fixture(scope="module")
def uninterrupted():
    """What each job gives after the part that is sealed when it never stops, by job."""
    found = {}
    for name, job in JOBS.items():
        with sealed(job, "memory", lambda _: None) as harness:
            counts = {sink: len(harness.results(sink)) for sink in harness.sink_names()}
            offsets = harness.loop.manifest.offsets
            read = {uid: sum(shards.values()) for uid, shards in offsets.items()}
            now_ms = harness.clock.now_ms()
            job.after(harness)
            results = {
                sink: plain(harness.results(sink)[counts[sink] :]) for sink in harness.sink_names()
            }
            found[name] = (read, now_ms, results)
    return found


def plain(records):
    """Return records as they compare between two runs: subtasks may come in any order."""
    return sorted(json.dumps(readable(record)) for record in records)


def unpacked(path, folder):
    with zipfile.ZipFile(path) as archive:
        archive.extractall(folder)
    return LocalStorage(str(folder))


def check(path, folder, uninterrupted, *, backend, **settings):
    """Go on from a golden file, and compare with the job that never stopped."""
    name = path.name.partition(".")[0]
    read, now_ms, expected = uninterrupted[name]
    url = unpacked(path, folder).url
    with opened(JOBS[name], backend, start_from=url, start_ms=now_ms, **settings) as harness:
        for source, count in read.items():
            harness.push([None] * count, source=source)
        JOBS[name].after(harness)
        found = {sink: plain(harness.results(sink)) for sink in harness.sink_names()}
    for (job, sink), changes in KEPT_BEFORE.items():
        if job == name and path.parent.name in BEFORE_THE_RELEASE:
            then = dict(changes)
            expected = {**expected, sink: sorted(then.get(r, r) for r in expected[sink])}
    assert found == expected


@pytest.mark.parametrize("path", PACKED, ids=told)
def test_a_job_goes_on_from_what_a_release_wrote(path, tmp_path, uninterrupted):
    check(path, tmp_path, uninterrupted, backend=path.name.split(".")[1])


@pytest.mark.parametrize("path", SAVEPOINTS, ids=told)
def test_it_does_so_with_the_other_backend_at_another_parallelism(path, tmp_path, uninterrupted):
    # What a subtask keeps without a key depends on how many there are.
    parallelism = 2 if path.name.startswith("states") else 3
    (backend,) = set(BACKENDS) - {path.name.split(".")[1]}

    check(path, tmp_path, uninterrupted, backend=backend, parallelism=parallelism)


@pytest.mark.parametrize("path", SAVEPOINTS, ids=told)
def test_savepoints_of_a_release_are_whole(path, tmp_path):
    assert verify_savepoint(unpacked(path, tmp_path)).name == path.parent.name


@pytest.mark.parametrize("path", PACKED, ids=told)
def test_what_has_a_schema_names_no_class_in_its_files(path, tmp_path):
    storage = unpacked(path, tmp_path)
    manifest = EpochHistory(storage).manifest()
    schemas = [
        state.schema_version.schema
        for state_metadata in manifest.state_metadata.values()
        for state in state_metadata.states
        if not state.name.startswith("$")
    ]

    assert all(b"tests.golden" not in storage.read(path) for path in manifest.state_paths())
    assert schemas == [] or any(schema != UNTYPED for schema in schemas)


def test_every_folder_is_restored():
    folders = {path.name for path in FOLDER.iterdir() if path.is_dir()} - {"__pycache__"}

    assert folders <= {path.parent.name for path in PACKED}


def test_the_golden_files_of_a_release_are_never_written_again():
    with pytest.raises(FileExistsError):
        write(FOLDER / RELEASES[0])


def test_bases_of_both_backends_are_among_the_files(tmp_path):
    found = set()
    for path in PACKED:
        storage = unpacked(path, tmp_path / told(path))
        states = EpochHistory(storage).manifest().states.values()
        files = [ref for state in states for part in state.ranges for ref in part.files]
        found |= {path.name.split(".")[1] for ref in files if ref.is_base}

    assert found == set(BACKENDS)


def test_the_first_release_has_every_kind_of_state():
    names = {path.name for path in PACKED if path.parent.name == RELEASES[0]}

    assert names == {
        f"{job}.{backend}.{kind}.zip"
        for job in ("evolved", "joins", "loops", "states", "windows")
        for backend in BACKENDS
        for kind in ("checkpoint", "savepoint")
    }
