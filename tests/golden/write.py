"""Write the golden checkpoints of a release: ``python -m tests.golden.write VERSION``, once.

A folder that exists is never written again; see README.md.
"""

from __future__ import annotations

import sys
import tempfile
import zipfile
from pathlib import Path

from bicycle_runtime.base.storage import LocalStorage, Storage
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.recovery.savepoints import write_savepoint
from bicycle_runtime.testing import Harness
from tests.golden.jobs import JOBS, GoldenJob

__all__ = ["BACKENDS", "FOLDER", "opened", "write"]

FOLDER = Path(__file__).parent
BACKENDS = ("memory", "rocksdb")
_S = 1_000
_NO_TIME = (1980, 1, 1, 0, 0, 0)


def opened(job: GoldenJob, backend: str, **settings) -> Harness:
    """Return a harness for a golden job, to be used as a context manager."""
    # An interval that is over after each epoch makes bases, so that they are among the files.
    engine = EngineOptions(state_backend=backend, checkpoint_interval_ms=_S, retained_epochs=2)
    return Harness(job.build, engine=engine, **{"parallelism": 2, **settings})


def write(version: str) -> None:
    """Write a checkpoint directory and a savepoint of each job with each backend.

    Raises:
        FileExistsError: the release has its golden files already.
    """
    folder = FOLDER / version
    folder.mkdir()
    for name, job in sorted(JOBS.items()):
        for backend in BACKENDS:
            with opened(job, backend) as harness, tempfile.TemporaryDirectory() as scratch:
                job.before(harness)
                _pack(harness.storage, folder / f"{name}.{backend}.checkpoint.zip")
                savepoint = LocalStorage(scratch)
                epoch = harness.epoch
                write_savepoint(harness.storage, savepoint, epoch=epoch, name=version, now_ms=0)
                _pack(savepoint, folder / f"{name}.{backend}.savepoint.zip")


def _pack(storage: Storage, path: Path) -> None:
    with zipfile.ZipFile(path, "x", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(storage.list("")):
            archive.writestr(
                zipfile.ZipInfo(name, _NO_TIME), storage.read(name), zipfile.ZIP_DEFLATED
            )


if __name__ == "__main__":
    write(sys.argv[1])
