"""Errors of recovery: damaged or duplicate manifests, jobs that do not match."""

from bicycle_sdk.errors import BicycleError


class CheckpointFormatError(BicycleError):
    """The bytes of a checkpoint state are truncated or wrong; see ``detail``.

    ``problem`` is a word for programs: ``header_cut``, ``number_cut``, ``name_cut``, ``state_cut``
    (``missing_count`` bytes are missing of the part that begins at ``offset``), ``name_encoding``,
    ``name_twice``, ``bytes_left``; of files also ``trailer_cut``, ``checksum``, ``version``.
    """

    code = "BIC-1501"
    message = "Deserialization error: {detail}"
    fix = "use the newest intact checkpoint"


class ManifestError(BicycleError):
    """A manifest is damaged."""

    code = "BIC-1502"
    message = "manifest {path!r} is not readable: {reason}"
    fix = "no action needed: the job continues from the previous epoch"


class ManifestVersionError(ManifestError):
    """A manifest is intact, but another version of the runtime wrote it."""

    code = "BIC-1544"
    message = "manifest {path!r} has a format that this runtime does not support: {reason}"
    fix = (
        "run the job with the version of bicycle-runtime that ran it last, or a newer version; if "
        "no other version ever ran it, the version in the file is damaged: remove the file, and "
        "the job continues from the previous epoch; nothing was changed"
    )


CONNECTOR_STATE_NEWER = BicycleError.row(
    "BIC-1545",
    "{role} {operator!r} of job {job!r} has sealed state of format version {found}, but this "
    "runtime supports versions up to {known}; nothing was started and the checkpoint is "
    "unchanged",
    cause="A newer version of a connector wrote the state from which the job starts.",
    fix=(
        "run the job with the version of bicycle-runtime, or of the plugin with the connector, "
        "that ran it last, or with a newer version"
    ),
)


class EpochTakenError(BicycleError):
    """Another driver sealed the epoch first."""

    code = "BIC-1503"
    message = (
        "epoch {epoch} of job {job!r} was sealed by another driver; the results of this driver are "
        "discarded"
    )
    fix = (
        "run only one driver on this checkpoint directory. This driver continues after that epoch, "
        "according to the restart strategy of the job, unless the other driver still holds the "
        "lease"
    )


NO_EPOCH_READABLE = BicycleError.row(
    "BIC-1504",
    "all {count} manifests of job {job!r} in {url} are unreadable; first reason: {reason}",
    cause="Manifests exist, but all of them are damaged.",
    fix="restore the checkpoint directory from a copy, or choose another directory to start empty",
)
STATE_LOST = BicycleError.row(
    "BIC-1505",
    "job {job!r} has sealed state of {lost}, which is not in the graph of this run{instead}; "
    "nothing was started and the checkpoint is unchanged",
    cause=(
        "The job has state, offsets or unpublished output of operators that are no longer in its "
        "graph, or of sources and sinks that have another connector now."
    ),
    fix=(
        "use the previous uids, connectors and state names of the operators (or aliases), start "
        "empty under another job name, or discard the state with --allow-dropped-state"
    ),
)
CHECKPOINT_VALUE_UNFIT = BicycleError.row(
    "BIC-1510",
    "{field} of a checkpoint must be {expected}, got {found}",
    cause="A value does not fit into a checkpoint.",
    fix="correct the value; nothing was saved",
)
CHECKPOINT_DAMAGED = BicycleError.row(
    "BIC-1511",
    "checkpoint {path!r} of stream {stream!r} is not readable: {reason}",
    cause=(
        "A saved checkpoint is truncated, changed, of another version, or does not match its name."
    ),
    fix="no action needed: the previous checkpoint is used",
)
NO_CHECKPOINT_READABLE = BicycleError.row(
    "BIC-1512",
    "all {count} checkpoints of stream {stream!r} in {url} are unreadable; first reason: {reason}",
    cause="Checkpoints of a stream exist, but all of them are damaged.",
    fix="restore the directory from a copy, or call delete_before to start the stream empty",
)
CHECKPOINT_MISSING = BicycleError.row(
    "BIC-1520",
    "no sealed epoch of a job found in {url}{found}",
    cause="A directory contains no checkpoint.",
    fix="{hint}",
)
EPOCH_UNKNOWN = BicycleError.row(
    "BIC-1521",
    "epoch {epoch} is not in {url}; available epochs: {known_text}",
    cause=(
        "The checkpoint directory does not retain the requested epoch; ``known`` lists the "
        "retained epochs."
    ),
    fix="choose one of the available epochs; --retained-epochs sets how many epochs a job retains",
)


class EpochGoneError(BicycleError):
    """The running job removed an epoch while it was read."""

    code = "BIC-1522"
    message = (
        "epoch {epoch} in {url} was removed by the job while it was read; available epochs: "
        "{known_text}"
    )
    fix = "choose a newer epoch, or retain more epochs with --retained-epochs"


SAVEPOINT_TAKEN = BicycleError.row(
    "BIC-1523",
    "{url} already contains {found}; nothing was changed",
    cause="The target of a savepoint is not empty.",
    fix="choose another --name, or remove the content with `bicycle savepoint delete {url}`",
)
COPY_REFUSED = BicycleError.row(
    "BIC-1524",
    "file {path!r} in {url} cannot be used: {problem}",
    cause="A file that a copy needs is missing or damaged; the copy was aborted.",
    fix="use another savepoint or epoch, or restore the original file",
)


class SavepointFormatError(BicycleError):
    """The description of a savepoint cannot be read."""

    code = "BIC-1525"
    message = "savepoint in {url} is not readable: {problem}"
    fix = "use the version of bicycle-runtime that wrote it, or another savepoint"


SAVEPOINT_SIGNATURE_WRONG = BicycleError.row(
    "BIC-1531",
    "savepoint in {url} is rejected: {problem}",
    cause="A savepoint is not signed with the given key.",
    fix=(
        "use a savepoint that was signed with this key (--savepoint-key), or pass the key that "
        "signed it; nothing was copied"
    ),
)


class SavepointUnfinishedError(BicycleError):
    """The creation of a savepoint was interrupted."""

    code = "BIC-1526"
    message = "savepoint in {url} is incomplete"
    fix = (
        "remove it with `bicycle savepoint delete {url}`, then use another savepoint or create it "
        "again"
    )


EPOCH_UNPUBLISHED = BicycleError.row(
    "BIC-1527",
    "epoch {epoch} of job {job!r} in {url} is sealed but not published: a savepoint would lose "
    "its output",
    cause="The last epoch of a killed job is sealed, but its output is not visible yet.",
    fix="start the job once, which publishes the epoch, then repeat the command",
)
CHECKPOINT_OCCUPIED = BicycleError.row(
    "BIC-1528",
    "checkpoint directory {url} must be empty to start from a savepoint, but contains {found}; "
    "nothing was changed",
    cause="A job is started from a savepoint, but its checkpoint directory is not empty.",
    fix=(
        "choose another --name or --checkpoint-dir; without --from, the job continues from the "
        "existing checkpoint"
    ),
)
RESTORE_UNFINISHED = BicycleError.row(
    "BIC-1529",
    "the restore of a savepoint into {url} was interrupted; nothing was started",
    cause="A job is started in a directory into which a savepoint was only partly restored.",
    fix=(
        "repeat the interrupted command (a start with --from, or `bicycle savepoint restore`); to "
        "start without the savepoint, remove {url}"
    ),
)


class SavepointMissingError(BicycleError):
    """A directory contains no savepoint."""

    code = "BIC-1530"
    message = "no savepoint found in {url}"
    fix = "run `bicycle savepoint list`; a savepoint is a directory with the file savepoint.json"


class LeaseHeldError(BicycleError):
    """Another live driver runs the job on this checkpoint directory."""

    code = "BIC-1540"
    message = (
        "job {job!r} in {url} is already run by process {pid} on {host} since {since} (lease "
        "{number}); nothing was changed"
    )
    fix = "stop that driver first, or choose another --name or --checkpoint-dir"


CHECKPOINT_GONE = BicycleError.row(
    "BIC-1542",
    "checkpoint directory {url} of job {job!r} is gone: {missing} does not exist (a disk was "
    "unmounted, or the directory was moved, deleted or emptied); nothing was written there",
    cause="The checkpoint directory of a job with sealed epochs no longer exists.",
    fix="mount the disk or move the directory back, then run `bicycle resume {job}`, which "
    "continues after the last sealed epoch; to start empty instead, make the empty directory {url} "
    "and start the job",
)
CHECKPOINT_UNIDENTIFIED = BicycleError.row(
    "BIC-1543",
    "checkpoint directory {url} has sealed epochs, but its identity file job.json is "
    "{problem}; nothing was started or changed",
    cause="A checkpoint directory has epochs, but no file that names the job and the format.",
    fix=(
        "restore job.json from a copy of the directory. Without a copy, start the job under "
        "another --name with --from {url}, or choose another --checkpoint-dir to start empty"
    ),
)
LEASE_LOST = BicycleError.row(
    "BIC-1541",
    "job {job!r} in {url} was taken over by process {pid} on {host} at {since} (lease "
    "{number}); this driver (lease {own_number}) ends and changes nothing more",
    cause="Another driver took over the job while this driver was suspended.",
    fix=(
        "no action needed: the other driver continues the job. Check why this process or its "
        "storage did not respond for several seconds"
    ),
)
