"""A process that seals epochs and makes bases, until somebody kills it or all are sealed.

``python base_worker.py FOLDER BACKEND``. It goes on from what is sealed, and fails when that is not
what the epochs wrote.
"""

import sys
from pathlib import Path

from bicycle_runtime.state.sealed import bases
from tests.unit.recovery.ledger_job import Job

EPOCHS = 24


def entries_of(number):
    return {number % 7: number}


def expected(epoch):
    found = {}
    for number in range(1, epoch + 1):
        found |= entries_of(number)
    return found


def run(folder, backend):
    job = Job(folder / "job", backend=backend)
    assert job.read() == expected(job.manifest.epoch)
    job.models[job.manifest.epoch] = expected(job.manifest.epoch)
    while job.manifest.epoch < EPOCHS:
        number = job.manifest.epoch + 1
        job.seal(job.run(entries_of(number), is_interval_over=number % 5 == 0), entries_of(number))
        job.collect()
    assert job.read() == expected(EPOCHS)
    assert any(ref.is_base for ref in job.state.files)
    job.close()


if __name__ == "__main__":
    bases.fold_start = lambda files, *, is_interval_over: is_interval_over
    run(Path(sys.argv[1]), sys.argv[2])
