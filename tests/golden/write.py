"""Write the golden checkpoints of a release: ``python -m tests.golden.write VERSION``, once.

A folder that exists is never written again; see README.md. A path in place of the version writes
them elsewhere: tests/golden also reads the folder that BICYCLE_GOLDEN names, so that another
version of Python can read what this one wrote.
"""

from __future__ import annotations

import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bicycle_runtime.base.storage import LocalStorage, Storage
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.recovery.savepoints import write_savepoint
from bicycle_runtime.testing import Harness
from tests.golden.jobs import JOBS, GoldenJob
from tests.waiting import until

__all__ = ["BACKENDS", "FOLDER", "opened", "sealed", "write"]

FOLDER = Path(__file__).parent
BACKENDS = ("memory", "rocksdb")
_S = 1_000
_NO_TIME = (1980, 1, 1, 0, 0, 0)


def opened(job: GoldenJob, backend: str, **settings) -> Harness:
    """Return a harness for a golden job, to be used as a context manager."""
    # An interval that is over after each epoch makes bases, so that they are among the files.
    engine = EngineOptions(state_backend=backend, checkpoint_interval_ms=_S, retained_epochs=2)
    return Harness(job.build, engine=engine, **{"parallelism": 2, **settings})


@contextmanager
def sealed(job: GoldenJob, backend: str, pause: Callable[[Harness], None]) -> Iterator[Harness]:
    """Run what is sealed of a job, with its former code first, and give its harness."""
    if job.former is None:
        with opened(job, backend) as harness:
            job.before(harness, pause)
            yield harness
        return
    with sealed(job.former, backend, pause) as former:
        snapshot, read, now_ms = former.snapshot(), former.read_counts(), former.clock.now_ms()
    with opened(job, backend, start_ms=now_ms) as harness:
        for source, count in read.items():
            harness.push([None] * count, source=source)  # What the former code has read.
        harness.restore(snapshot)
        job.before(harness, pause)
        yield harness


def write(folder: Path) -> None:
    """Write a checkpoint directory and a savepoint of each job with each backend.

    Raises:
        FileExistsError: the release has its golden files already.
    """
    folder.mkdir()
    for name, job in sorted(JOBS.items()):
        for backend in BACKENDS:
            begun = sealed(job, backend, wait_for_bases)
            with begun as harness, tempfile.TemporaryDirectory() as scratch:
                _pack(harness.storage, folder / f"{name}.{backend}.checkpoint.zip")
                savepoint = LocalStorage(scratch)
                epoch = harness.epoch
                write_savepoint(harness.storage, savepoint, epoch=epoch, name=folder.name, now_ms=0)
                _pack(savepoint, folder / f"{name}.{backend}.savepoint.zip")


def wait_for_bases(harness: Harness) -> None:
    """Wait until the bases are made that were begun, so that the next epoch takes them."""
    states = harness.loop.manifest.states.values()
    begun = [
        part.making.index
        for state in states
        for part in state.ranges
        if part.making is not None and part.making.epoch < part.epoch
    ]
    until(lambda: all(map(harness.storage.exists, begun)), f"the bases {begun}")


def _pack(storage: Storage, path: Path) -> None:
    with zipfile.ZipFile(path, "x", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(storage.list("")):
            archive.writestr(
                zipfile.ZipInfo(name, _NO_TIME), storage.read(name), zipfile.ZIP_DEFLATED
            )


if __name__ == "__main__":
    write(FOLDER / sys.argv[1])
