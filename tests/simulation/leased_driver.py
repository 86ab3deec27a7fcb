"""A driver in a process of its own, with a lease and without Spark, for tests that freeze it."""

from __future__ import annotations

import contextlib
import json
import logging
import random
import sys
import threading
from pathlib import Path

from bicycle_runtime.base.ids import attempt_id
from bicycle_runtime.base.storage import LocalStorage, StorageError
from bicycle_runtime.base.storage_urls import open_storage
from bicycle_runtime.engine.local import LocalExecutor
from bicycle_runtime.engine.loop.epoch_loop import EpochLoop
from bicycle_runtime.engine.loop.services import LoopServices
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.engine.planning.setup import prepare_job
from bicycle_runtime.extraction.bundle import JobBundle
from bicycle_runtime.recovery.lease import Lease, LeaseKeeper
from bicycle_sdk.clock import SystemClock
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.random_source import system_random


def main(
    bundle: str, location: str, *, beat_ms: int, records_max: int, patience_s: float = 30
) -> int:
    """Run the job to the end of its input; 1 when an error ends it, which stands in stdout."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    storage = open_storage(location, patience_s=patience_s)
    if isinstance(storage, LocalStorage):
        storage = LocalStorage(storage.root, is_synced=False)
    lease = Lease(storage, job="job", clock=SystemClock(), source=random.Random(), beat_ms=beat_ms)
    lost = threading.Event()
    try:
        with LeaseKeeper(lease, beat_ms=beat_ms, on_lost=lost.set):
            try:
                run(Path(bundle).read_bytes(), storage, lease, lost, records_max=records_max)
            except BicycleError:
                with contextlib.suppress(StorageError):
                    lease.require()  # When it is lost, that is what ended us.
                raise
    except BicycleError as error:
        sys.stdout.write(json.dumps(error.to_json(), default=str))
        return 1
    return 0


def run(data, storage, lease, lost, *, records_max):
    setup = prepare_job(JobBundle.from_bytes(data), job_id="job", storage=storage, parallelism=2)
    loop = EpochLoop(
        setup,
        LocalExecutor(),
        options=EngineOptions(max_records_per_epoch=records_max),
        run_id=attempt_id(source=system_random()),
        services=LoopServices(
            clock=SystemClock(), console=print, on_epoch=lambda stats: None, fence=lease
        ),
    )
    with loop:
        while True:
            if lost.is_set():
                lease.require()
            step = loop.step()
            if step.is_finished:
                break
            if not step.has_run:
                lost.wait(step.wait_ms / 1_000)
        loop.finish(is_finished=True)


if __name__ == "__main__":
    bundle, location, beat_ms, records_max, *more = sys.argv[1:]
    patience_s = float(more[0]) if more else 30.0
    sys.exit(
        main(
            bundle,
            location,
            beat_ms=int(beat_ms),
            records_max=int(records_max),
            patience_s=patience_s,
        )
    )
