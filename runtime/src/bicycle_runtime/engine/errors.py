"""Errors of the engine: graphs without a plan, lost workers, Spark that does not start."""

from __future__ import annotations

from bicycle_sdk.errors import BicycleError


class EpochFailedError(BicycleError):
    """The tasks of an epoch failed for a reason that is not a typed error."""

    code = "BIC-1801"
    message = "epoch {epoch} of job {job!r} could not be run: {reason}"
    fix = (
        "look at the log of the workers; earlier epochs are intact, and the job is started again "
        "by itself as its restart strategy says. Once that is used up, the same command goes on"
    )


# `operator`, `source`, `shard`, `offset` and `end_offset` tell what it was at.
WORKER_ENDED = EpochFailedError.row(
    "BIC-1808",
    "a Python worker ended with {how} in epoch {epoch} of job {job!r}, in operator {told}, "
    "subtask {subtask}\n"
    "  on the records from {position}",
    cause="A Python worker was killed, crashed or was ended by what it ran, and so were those "
    "after it.",
    fix="{hint}. Earlier epochs are intact, and the job is started again by itself as its restart "
    "strategy says; once that is used up, the same command goes on",
)


class SparkStartError(BicycleError):
    """Spark does not start."""

    code = "BIC-1802"
    message = "Spark did not start (master {master}): {reason}"
    fix = "run `bicycle doctor`; check Java (17 or newer), the master URL and free memory"


class SparkStartKilledError(SparkStartError):
    """Spark's Java process was killed while it started, or was too slow: another start may do."""

    code = "BIC-1807"
    message = "Spark did not start (master {master}): {reason}"
    fix = (
        "look whether something kills Java: SIGKILL is often a lack of memory; a job is "
        "started again by itself as its restart strategy says"
    )


MASTER_UNREACHABLE = SparkStartError.row(
    "BIC-1850",
    "no Spark master answers as {master}: {reason}",
    cause="Nobody answers at the address of a cluster's master.",
    fix="check the URL and that the cluster runs (`bicycle dev cluster status` for one of yours)",
)
NO_EXECUTOR = SparkStartError.row(
    "BIC-1851",
    "the cluster {master} gave the job no executor within {wait_s:g} s",
    cause="The cluster's master answers, but no worker gave the job an executor in time.",
    fix="look at the master's page: are workers alive, with free cores and enough memory? Ask for "
    "less (--conf spark.cores.max=2 --conf spark.executor.memory=512m), or wait longer "
    "(--cluster-timeout-ms)",
)
HANDSHAKE_FAILED = BicycleError.row(
    "BIC-1852",
    "plugin, driver and hosts of the cluster differ in {differing_text}:\n{table_text}",
    cause="Plugin, driver and hosts do not fit together. ``table`` is a list of rows of texts.",
    fix="install what differs (marked with !) in the same version everywhere, or name the workers' "
    "interpreter with --conf spark.pyspark.python=…; nothing was read",
)
EXECUTORS_LOST = EpochFailedError.row(
    "BIC-1853",
    "epoch {epoch} of job {job!r} has had no executor for {wait_s:g} s: {reason}",
    cause="All executors of a job are gone, and none came back in time.",
    fix="start the cluster's workers again; the job is started again by itself as its restart "
    "strategy says. Once that is used up, the same command goes on from the last sealed epoch",
)


class SparkLostError(BicycleError):
    """The Java process of Spark is gone."""

    code = "BIC-1803"
    message = "the Java process of Spark ended with {how} during epoch {epoch} of job {job!r}"
    fix = (
        "nothing while the job is started again by itself, as its restart strategy says; SIGKILL "
        "is often a lack of memory (`dmesg`; --conf spark.driver.memory). Once the strategy is "
        "used up, the same command goes on from the last sealed epoch"
    )


class EpochMixedError(BicycleError):
    """Parts of a stage were computed twice, and the next stage read both."""

    code = "BIC-1805"
    message = (
        "epoch {epoch} of job {job!r}: the output of task {subtask} of level {level} was lost and "
        "computed again while others had read it already"
    )
    fix = "nothing to do: the epoch is run again as a whole; if it goes on, look for failing hosts"


BATCH_MODE_ENDLESS = BicycleError.row(
    "BIC-1806",
    "job {job!r} runs in batch mode, but these sources never end by themselves: {sources_text}",
    cause="A job is to read its input in one pass, but some of it never ends.",
    fix="bound them (no follow for files, a count for generators, bounded() for topics), or run "
    "the job with --mode streaming",
)
KEY_GROUP_CONFLICT = BicycleError.row(
    "BIC-1804",
    "the consumers of key_by {vertex!r} ask for {counts} key groups",
    cause="Consumers of one keyed stream ask for different numbers of key groups.",
    fix="give all consumers of one key_by the same max_parallelism, or call key_by for each of "
    "them",
)
PARTITION_CONFLICT = BicycleError.row(
    "BIC-1809",
    "the function of partition_custom {operator!r} ({made}) cannot choose: {problem}",
    cause="A ``partition_custom`` has no one number of subtasks to choose from.",
    fix="give all operators right behind the call the same parallelism, or call partition_custom "
    "for each of them; in a loop, call it on what iterate() returns",
)
REPLAY_INPUT_GONE = BicycleError.row(
    "BIC-1870",
    "source {source!r} cannot be read again from {start} to {end} of {shard!r}: {reason}",
    cause="The input of an epoch is kept nowhere any more, so the epoch cannot be run again.",
    fix="replay a newer epoch; a socket source keeps what the last epochs read "
    "(journal_epochs_min), a topic what its retention leaves",
)
REPLAY_GRAPH_CHANGED = BicycleError.row(
    "BIC-1871",
    "epoch {epoch} read sources that the graph has not: {missing}; it has: {known_text}",
    cause="The plugin of now has not the sources that an epoch read.",
    fix="name the plugin that ran the epoch, in a version with the same sources, with --plugin",
)
SHADOW_OUTRUN = BicycleError.row(
    "BIC-1872",
    "the new version of job {job!r} has followed it to epoch {epoch}, which the job keeps no more",
    cause="A version that runs beside its job is so slow that the job has removed epochs which it "
    "had not come to.",
    fix="give the version more of the machine, or upgrade with the strategy stop-and-go",
)
SHADOW_ASTRAY = BicycleError.row(
    "BIC-1873",
    "the new version of job {job!r} is not where the job is at epoch {epoch}: {reason}",
    cause="A version that runs beside its job has not read the very input that the job has read.",
    fix="begin the upgrade again; where the version reads its input otherwise, upgrade with the "
    "strategy stop-and-go",
)
WIDTH_OPERATOR_UNKNOWN = BicycleError.row(
    "BIC-1840",
    "job {job!r} has no operator {operator!r}; its operators: {known_text}",
    cause="Another parallelism is asked for an operator that the job does not have.",
    fix="name one of them by its uid, as `bicycle status {job}` shows it",
)
WIDTH_REFUSED = BicycleError.row(
    "BIC-1841",
    "operator {operator!r} of job {job!r} cannot have parallelism {found}, but 1 to {limit}; "
    "it goes on with {now}",
    cause="An operator cannot have the parallelism that is asked for.",
    fix="ask for less; the limit is the operator's max_parallelism, which is fixed with its state, "
    "or 1 of a source that cannot be divided",
)
RESCALE_FAILED = BicycleError.row(
    "BIC-1842",
    "job {job!r} cannot be rescaled and goes on as before: {reason}",
    cause="The first epoch at another parallelism failed; the job has gone back to the one before.",
    fix="{hint}",
)
DEAD_LETTER_NOT_REPLAYABLE = BicycleError.row(
    "BIC-1880",
    "dead letter {letter!r} of operator {operator!r} cannot be replayed: {reason}",
    cause="A dead letter is no record that an operator of the job could be given once more.",
    fix="see it with `bicycle dlq show`, and give what it says to the job's input by other means; "
    "no letter was replayed",
)
LETTERS_NOT_REPLAYED = BicycleError.row(
    "BIC-1881",
    "{count} dead letter(s) of job {job!r} were not replayed: {reason}; the job goes on as before "
    "({cause})",
    cause="The epoch that was to replay dead letters failed, before anything of it counted.",
    fix="{hint}",
)
