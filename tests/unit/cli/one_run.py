"""A whole run of an installed plugin without Spark, in a process that has nothing else loaded.

``python one_run.py PLUGIN CHECKPOINT [NAME=VALUE …]`` reads the input to its end from where the
checkpoint stands, and prints what the sink ``out`` got as JSON.
"""

import json
import sys

from bicycle_runtime.base.ids import attempt_id
from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.engine.local import LocalExecutor
from bicycle_runtime.engine.loop.epoch_loop import EpochLoop
from bicycle_runtime.engine.loop.services import LoopServices
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.engine.planning.setup import prepare_job
from bicycle_runtime.extraction.discovery import discover
from bicycle_runtime.extraction.extract import extract
from bicycle_runtime.jobs.checkpoints.job_file import note_run
from bicycle_sdk.clock import SystemClock
from bicycle_sdk.random_source import system_random


def main(plugin, checkpoint, *pairs):
    bundle = extract(discover().find(plugin), dict(pair.split("=", 1) for pair in pairs))
    storage = LocalStorage(checkpoint, is_synced=False)
    setup = prepare_job(bundle, job_id="job", storage=storage)
    note_run(setup, now_ms=0)
    collected = {}
    services = LoopServices(
        clock=SystemClock(),
        console=lambda _: None,
        on_epoch=lambda _: None,
        collected=collected,
    )
    run_id = attempt_id(source=system_random())
    options = EngineOptions()
    with EpochLoop(
        setup, LocalExecutor(), options=options, run_id=run_id, services=services
    ) as loop:
        while loop.step().has_run:
            pass
        loop.finish(is_finished=False)
    sys.stdout.write(json.dumps(collected["out"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
