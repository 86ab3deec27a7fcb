"""Paths in a checkpoint directory: folders, file names, and number formats.

A savepoint has the same folders, and two files more.
"""

__all__ = [
    "BEGUN_EPOCH",
    "CHECKPOINT_FORMAT_VERSION",
    "CONNECTORS",
    "DAMAGED_MANIFEST",
    "EPOCHS",
    "EPOCH_DIGITS",
    "JOB_FILE",
    "LEASE",
    "LEASE_BEAT",
    "LEASE_DIGITS",
    "LEASE_RELEASED",
    "LEASE_SETTLED",
    "LOADING",
    "MANIFEST",
    "PUBLISHED",
    "READING",
    "RESTORE_CLAIM",
    "SAVEPOINTS",
    "SAVEPOINT_CLAIM",
    "SAVEPOINT_FILE",
    "SAVEPOINT_SIGNATURE",
    "SHADOW",
    "STAGED",
    "STATE",
]

JOB_FILE = "job.json"
CHECKPOINT_FORMAT_VERSION = 1  # As written in the file.

EPOCHS = "epochs"
EPOCH_DIGITS = 12
# Endings of the files of an epoch.
MANIFEST, DAMAGED_MANIFEST, PUBLISHED = "manifest", "manifest.damaged", "published"
BEGUN_EPOCH = "epochs/begun"

LEASE = "lease"
LEASE_DIGITS = 12
# Endings of the files next to a lease.
LEASE_BEAT, LEASE_RELEASED, LEASE_SETTLED = "beat", "released", "settled"

RESTORE_CLAIM = "restore.unfinished"

STATE = "state"
STAGED = "staged"
CONNECTORS = "connectors"

# How far tasks are that take long: only for as long as they run.
LOADING, READING = "loading", "reading"

SAVEPOINTS = "savepoints"  # In the checkpoint directory of a job.
SAVEPOINT_FILE, SAVEPOINT_SIGNATURE = "savepoint.json", "savepoint.hmac"
SAVEPOINT_CLAIM = "savepoint.unfinished"

SHADOW = "shadow"  # Checkpoints of a version that runs beside the job; there while it is upgraded.
