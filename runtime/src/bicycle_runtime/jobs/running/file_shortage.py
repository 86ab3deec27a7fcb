"""A lack of file descriptors in the driver: waited for like an outage, since it passes by itself.

Leaving the epoch loop closes its connections and files, clients of sockets too. Nothing of the
epoch that met the lack has happened.
"""

from __future__ import annotations

import logging

from bicycle_runtime.base.logging import log_event
from bicycle_runtime.base.open_files import has_room
from bicycle_runtime.base.processes import open_files_max
from bicycle_runtime.jobs.running.job_run import JobRun

__all__ = ["wait_for_files"]

_LOG = logging.getLogger(__name__)
_FILES_MIN = 24  # A start of the loop opens fewer at a time.
_PAUSE_MS = 1_000


def wait_for_files(run: JobRun, error: BaseException) -> bool:
    """Wait until the driver can open files again; return False when a stop was requested."""
    log_event(
        _LOG, "open_files_awaited", level=logging.WARNING, job=run.place.job,
        open_files_max=open_files_max(), reason=f"{type(error).__name__}: {error}",
    )  # fmt: skip
    with run.phases.waiting():
        while True:
            if run.services.stop.wait(_PAUSE_MS):  # Also where others leak: no loop without pauses.
                return False
            if has_room(_FILES_MIN):
                return True
