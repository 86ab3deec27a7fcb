"""Errors of recovery: manifests that are damaged or already there, jobs that do not match."""

from __future__ import annotations

from bicycle_sdk.errors import BicycleError


class CheckpointFormatError(BicycleError):
    """The bytes of a checkpoint state are cut or wrong; ``detail`` says what was missing.

    ``problem`` is a word for programs: ``header_cut``, ``number_cut``, ``name_cut``, ``state_cut``
    (``missing_count`` bytes are missing of what begins at ``offset``), ``name_encoding``,
    ``name_twice``, ``bytes_left``; of files also ``trailer_cut``, ``checksum``, ``version``.
    """

    code = "BIC-1501"
    message = "Deserialization error: {detail}"
    fix = "use the newest checkpoint that is whole"


class ManifestError(BicycleError):
    """A manifest is damaged."""

    code = "BIC-1502"
    message = "manifest {path!r} is not readable: {reason}"
    fix = "nothing to do: the job continues from the epoch before"


class ManifestVersionError(ManifestError):
    """A manifest is whole, but another version of the runtime wrote it."""

    code = "BIC-1544"
    message = "manifest {path!r} has another format than this runtime reads: {reason}"
    fix = (
        "run the job with the version of bicycle-runtime that ran it last, or a newer one; nothing "
        "was changed"
    )


CONNECTOR_STATE_NEWER = BicycleError.row(
    "BIC-1545",
    "{role} {operator!r} of job {job!r} has sealed state of format version {found}, and this "
    "runtime reads versions up to {known}; nothing was started and the checkpoint is unchanged",
    cause="A newer version of a connector wrote the state that the job would begin with.",
    fix="run the job with the version of bicycle-runtime, or of the plugin that has the connector, "
    "that ran it last, or with a newer one",
)


class EpochTakenError(BicycleError):
    """Another driver sealed the epoch first."""

    code = "BIC-1503"
    message = (
        "epoch {epoch} of job {job!r} was sealed by another driver; what this one did is dropped"
    )
    fix = (
        "run only one driver on this checkpoint directory; this one goes on behind that epoch, as "
        "the job's restart strategy says, unless the other one still holds the job"
    )


NO_EPOCH_READABLE = BicycleError.row(
    "BIC-1504",
    "none of the {count} manifests of job {job!r} in {url} is readable; first reason: {reason}",
    cause="Manifests exist, but none of them is whole.",
    fix="restore the checkpoint directory from a copy, or choose another one to start empty",
)
STATE_LOST = BicycleError.row(
    "BIC-1505",
    "job {job!r} has sealed state of {lost}, which the graph of this run does not have"
    "{instead}; nothing was started and the checkpoint is unchanged",
    cause="The job has state or offsets of operators that its graph no longer has.",
    fix="give operators the uids and states the names that they had (or aliases), start empty "
    "under another job name, or give it up with --allow-dropped-state",
)
CHECKPOINT_VALUE_UNFIT = BicycleError.row(
    "BIC-1510",
    "a checkpoint cannot hold the {field} {found}; expected {expected}",
    cause="A value does not fit into a checkpoint.",
    fix="correct the value; nothing was saved",
)
CHECKPOINT_DAMAGED = BicycleError.row(
    "BIC-1511",
    "checkpoint {path!r} of stream {stream!r} is not readable: {reason}",
    cause="A saved checkpoint is cut, changed, of another version or not what its name says.",
    fix="nothing to do: the checkpoint before it is used",
)
NO_CHECKPOINT_READABLE = BicycleError.row(
    "BIC-1512",
    "none of the {count} checkpoints of stream {stream!r} in {url} is readable; "
    "first reason: {reason}",
    cause="Checkpoints of a stream exist, but none of them is whole.",
    fix="restore the directory from a copy, or call delete_before to start the stream empty",
)
CHECKPOINT_MISSING = BicycleError.row(
    "BIC-1520",
    "there is no sealed epoch of a job in {url}{found}",
    cause="Somebody looks for a checkpoint where none is.",
    fix="{hint}",
)
EPOCH_UNKNOWN = BicycleError.row(
    "BIC-1521",
    "epoch {epoch} is not in {url}; epochs there: {known_text}",
    cause="An epoch is asked for that the checkpoint directory does not retain; ``known`` are "
    "those.",
    fix="ask for one of these; a job retains as many as --retained-epochs says",
)


class EpochGoneError(BicycleError):
    """The job that runs collected an epoch while somebody read it."""

    code = "BIC-1522"
    message = (
        "epoch {epoch} in {url} is gone: the job collected it while it was read; "
        "epochs there now: {known_text}"
    )
    fix = "ask again for a newer epoch, or let the job retain more with --retained-epochs"


SAVEPOINT_TAKEN = BicycleError.row(
    "BIC-1523",
    "there is {found} in {url} already; nothing was changed",
    cause="A savepoint is to be made where something is already.",
    fix="choose another --name, or remove it with `bicycle savepoint delete {url}`",
)
COPY_REFUSED = BicycleError.row(
    "BIC-1524",
    "file {path!r} in {url} cannot be used: {problem}",
    cause="A file that a copy needs is missing or damaged; the copy was given up.",
    fix="use another savepoint or epoch, or put the file back as it was",
)


class SavepointFormatError(BicycleError):
    """A savepoint's own description cannot be read."""

    code = "BIC-1525"
    message = "the savepoint in {url} cannot be read: {problem}"
    fix = "use the version of bicycle-runtime that wrote it, or another savepoint"


SAVEPOINT_SIGNATURE_WRONG = BicycleError.row(
    "BIC-1531",
    "the savepoint in {url} is refused: {problem}",
    cause="A savepoint is not signed with the key that is asked for.",
    fix="take a savepoint that was made with this key (--savepoint-key), or give the key that it "
    "was made with; nothing was copied",
)


class SavepointUnfinishedError(BicycleError):
    """The making of a savepoint was interrupted."""

    code = "BIC-1526"
    message = "the savepoint in {url} was never finished"
    fix = "remove it with `bicycle savepoint delete {url}`, and use another one or take it again"


EPOCH_UNPUBLISHED = BicycleError.row(
    "BIC-1527",
    "epoch {epoch} of job {job!r} in {url} is sealed but not published: a savepoint of it "
    "would lose its output",
    cause="The last epoch of a job that was killed is sealed, but its output is not visible yet.",
    fix="start the job once, which publishes the epoch first; then ask again",
)
CHECKPOINT_OCCUPIED = BicycleError.row(
    "BIC-1528",
    "the checkpoint directory {url} is not empty: it holds {found}; nothing was changed",
    cause="A job is to begin with a savepoint, but its checkpoint directory holds something "
    "already.",
    fix="choose another --name or --checkpoint-dir; without --from a job goes on with what is "
    "there",
)
RESTORE_UNFINISHED = BicycleError.row(
    "BIC-1529",
    "a savepoint was being put into {url} when that was interrupted; nothing was started",
    cause="A job is started where a savepoint was being put when that was interrupted.",
    fix="repeat the command that did: the start with --from, or `bicycle savepoint restore`; to "
    "start empty instead, remove {url}",
)


class SavepointMissingError(BicycleError):
    """Somebody looks for a savepoint where none is."""

    code = "BIC-1530"
    message = "there is no savepoint in {url}"
    fix = "see `bicycle savepoint list`; a savepoint is a directory with the file savepoint.json"


class LeaseHeldError(BicycleError):
    """Another driver runs the job on this checkpoint directory, and it lives."""

    code = "BIC-1540"
    message = (
        "job {job!r} in {url} is run by another driver, which is alive: process {pid} on {host}, "
        "since {since} (lease {number}); nothing was changed"
    )
    fix = "stop that driver first, or give this run another --name or --checkpoint-dir"


CHECKPOINT_GONE = BicycleError.row(
    "BIC-1542",
    "the checkpoint directory {url} of job {job!r} is gone: {missing} does not exist (a disk was "
    "unmounted, or the directory was moved, deleted or emptied); nothing was written there",
    cause="The checkpoint directory of a job that has sealed epochs is no longer there.",
    fix="mount the disk or move the directory back, then run `bicycle resume {job}`, which "
    "continues after the last sealed epoch; to start empty instead, make the empty directory {url} "
    "and start the job",
)
CHECKPOINT_UNIDENTIFIED = BicycleError.row(
    "BIC-1543",
    "the checkpoint directory {url} has sealed epochs, but its identity file job.json is "
    "{problem}; nothing was started or changed",
    cause="A checkpoint directory has epochs, but no file that names the job and the format.",
    fix="put job.json back from a copy of the directory; without a copy, start the job under "
    "another --name with --from {url}, or choose another --checkpoint-dir to start empty",
)
LEASE_LOST = BicycleError.row(
    "BIC-1541",
    "job {job!r} in {url} was taken over by another driver: process {pid} on {host}, since "
    "{since} (lease {number}); this driver (lease {own_number}) ends and changes nothing more",
    cause="Another driver took the job over while this one stood still.",
    fix="nothing to do: the other driver continues the job; look at why this process, or its "
    "storage, gave no sign of life for seconds",
)
