"""The operations on jobs that need no service, by name."""

from __future__ import annotations

from collections.abc import Mapping

from bicycle_runtime.jobs.operations.dead_letters import REPLAY_LETTERS
from bicycle_runtime.jobs.operations.ending import CANCEL, DRAIN, PAUSE, STOP, SUSPEND
from bicycle_runtime.jobs.operations.operation import OperationKind
from bicycle_runtime.jobs.operations.rescale import RESCALE
from bicycle_runtime.jobs.operations.resume import RESUME
from bicycle_runtime.jobs.operations.savepoint import DELETE_SAVEPOINT, RESTORE, SAVEPOINT

# The order is that of the buttons on a job's page.
JOB_OPERATIONS: Mapping[str, OperationKind] = {
    kind.name: kind
    for kind in (
        SAVEPOINT, RESCALE, PAUSE, STOP, SUSPEND, DRAIN, CANCEL, RESUME, REPLAY_LETTERS,
        DELETE_SAVEPOINT, RESTORE,
    )
}  # fmt: skip
