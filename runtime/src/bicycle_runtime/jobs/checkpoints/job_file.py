"""``job.json`` in the checkpoint storage: the identity of the job, and its format.

It names the plugin, the bundle's digest, the graph, the operators with state and their key groups
as of the last start that took over the state. It is the identity of the directory: epochs without
it belong to no known job and format, and no start takes them over. A changed digest is logged and
allowed: the engine decides whether state fits the new graph.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from bicycle_runtime.base.storage import ObjectMissingError, Storage
from bicycle_runtime.engine.planning.setup import JobSetup
from bicycle_runtime.jobs.errors import CHECKPOINT_VERSION_UNKNOWN
from bicycle_runtime.layouts.paths import CHECKPOINT_FORMAT_VERSION, JOB_FILE
from bicycle_runtime.operators.spec import StateScope
from bicycle_runtime.recovery.errors import CHECKPOINT_UNIDENTIFIED
from bicycle_runtime.recovery.history import EpochHistory
from bicycle_runtime.recovery.savepoints import job_facts
from bicycle_sdk.logging import log_event

_LOG = logging.getLogger(__name__)


def require_identity(storage: Storage) -> None:
    """Raise an error if a checkpoint directory has epochs but no identity.

    Raises:
        CHECKPOINT_UNIDENTIFIED: the file is missing or damaged; nothing was changed.
    """
    if not EpochHistory(storage).epochs():
        return
    try:
        is_readable = isinstance(json.loads(storage.read(JOB_FILE)), dict)
    except ObjectMissingError:
        raise CHECKPOINT_UNIDENTIFIED(url=storage.url, problem="missing") from None
    except ValueError:
        is_readable = False
    if not is_readable:
        raise CHECKPOINT_UNIDENTIFIED(url=storage.url, problem="damaged")


def refuse_newer(storage: Storage) -> None:
    """Refuse a checkpoint that a newer version wrote.

    Raises:
        CHECKPOINT_VERSION_UNKNOWN: it did; nothing was changed.
    """
    version = job_facts(storage).get("format_version", CHECKPOINT_FORMAT_VERSION)
    if version != CHECKPOINT_FORMAT_VERSION:
        raise CHECKPOINT_VERSION_UNKNOWN(
            url=storage.url, found=version, expected=CHECKPOINT_FORMAT_VERSION
        )


def note_run(setup: JobSetup, *, now_ms: int) -> None:
    """Write the file again, once a run has taken over the state.

    Raises:
        StorageError: the storage cannot be written.
    """
    former = _read(setup.storage)
    if former:
        _compare(former, setup)
    data = {
        "format_version": CHECKPOINT_FORMAT_VERSION,
        "job": setup.job_id,
        "plugin": setup.bundle.plugin,
        "plugin_version": setup.bundle.plugin_version,
        "dist": setup.bundle.dist,
        "sdk_version": setup.bundle.sdk_version,
        "python_version": setup.bundle.python_version,
        "bundle_digest": setup.bundle.digest,
        "graph": json.loads(setup.graph.to_json()),
        "key_groups": {
            spec.uid: spec.group_count
            for spec in setup.plan.operators()
            if spec.scope is StateScope.KEY_GROUPS
        },
        "operators": {
            spec.uid: spec.vertex.kind.value
            for spec in setup.plan.operators()
            if spec.scope is not StateScope.NONE
        },
        # Relative paths in the graph are below it.
        "working_directory": str(Path.cwd()),
        "created_ms": former.get("created_ms", now_ms),
        "started_ms": now_ms,
    }
    setup.storage.write(JOB_FILE, json.dumps(data, indent=2).encode() + b"\n")


def _read(storage: Storage) -> dict[str, Any]:
    try:
        data = json.loads(storage.read(JOB_FILE))
    except ObjectMissingError:
        return {}
    except ValueError as error:
        log_event(_LOG, "job_file_damaged", level=logging.WARNING, error=error, url=storage.url)
        return {}
    return data if isinstance(data, dict) else {}


def _compare(former: dict[str, Any], setup: JobSetup) -> None:
    if former.get("bundle_digest") != setup.bundle.digest:
        log_event(
            _LOG,
            "job_changed",
            job=setup.job_id,
            former_plugin=former.get("plugin"),
            former_version=former.get("plugin_version"),
            plugin=setup.bundle.plugin,
            plugin_version=setup.bundle.plugin_version,
        )
