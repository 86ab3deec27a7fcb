"""Errors of the engine: graphs without a plan, lost workers, failed Spark starts."""

from bicycle_sdk.errors import BicycleError


class EpochFailedError(BicycleError):
    """The tasks of an epoch failed with an error that has no code."""

    code = "BIC-1801"
    message = "epoch {epoch} of job {job!r} failed: {reason}"
    fix = (
        "check the logs of the workers. Earlier epochs are intact, and the job restarts "
        "automatically according to its restart strategy; if all attempts fail, run the same "
        "command again to continue"
    )


# `operator`, `source`, `shard`, `offset` and `end_offset` locate the error.
WORKER_ENDED = EpochFailedError.row(
    "BIC-1808",
    "a Python worker ended with {how} in epoch {epoch} of job {job!r}, in operator {told}, "
    "subtask {subtask}\n"
    "  on the records from {position}",
    cause=(
        "A Python worker was killed, crashed or was ended by user code, and so were its "
        "replacements."
    ),
    fix=(
        "{hint}. Earlier epochs are intact, and the job restarts automatically according to its "
        "restart strategy; if all attempts fail, run the same command again to continue"
    ),
)


class SparkStartError(BicycleError):
    """Spark did not start."""

    code = "BIC-1802"
    message = "Spark did not start (master {master}): {reason}"
    fix = "run `bicycle doctor`; check Java (17 or newer), the master URL and free memory"


class SparkStartKilledError(SparkStartError):
    """The Java process of Spark was killed or timed out during its start."""

    code = "BIC-1807"
    message = "Spark did not start (master {master}): {reason}"
    fix = (
        "check whether Java was killed: SIGKILL often means too little memory. The job restarts "
        "automatically according to its restart strategy"
    )


MASTER_UNREACHABLE = SparkStartError.row(
    "BIC-1850",
    "the Spark master {master} does not respond: {reason}",
    cause="The master of a cluster does not respond at its address.",
    fix="check the address of the master ({address}), and that the cluster runs",
)
NO_EXECUTOR = SparkStartError.row(
    "BIC-1851",
    "cluster {master} started no executor for the job within {wait_s:g} s",
    cause="The master of the cluster responds, but no worker started an executor in time.",
    fix=(
        "check that the cluster has free cores and memory ({resources}), request less "
        "({requests}), or wait longer (--cluster-timeout-ms)"
    ),
)
HANDSHAKE_FAILED = BicycleError.row(
    "BIC-1852",
    "plugin, driver and cluster hosts differ in {differing_text}:\n{table_text}",
    cause=(
        "The versions of plugin, driver and hosts do not match. ``table`` is a list of rows of "
        "texts."
    ),
    fix=(
        "install the libraries marked with ! in the same version everywhere, or set the "
        "interpreter of the workers with --conf spark.pyspark.python=…; nothing was read"
    ),
)
EXECUTORS_LOST = EpochFailedError.row(
    "BIC-1853",
    "epoch {epoch} of job {job!r} has had no executor for {wait_s:g} s: {reason}",
    cause="All executors of a job were lost, and no executor was available again in time.",
    fix=(
        "check that the cluster has workers with room for executors. The job restarts "
        "automatically according to its restart strategy; if all attempts fail, run the same "
        "command again to continue from the last sealed epoch"
    ),
)


class SparkLostError(BicycleError):
    """The Java process of Spark ended."""

    code = "BIC-1803"
    message = "the Java process of Spark ended with {how} during epoch {epoch} of job {job!r}"
    fix = (
        "no action needed: the job restarts automatically according to its restart strategy. "
        "SIGKILL often means that the machine had too little memory: check `dmesg`, or set --conf "
        "spark.driver.memory. If all attempts fail, run the same command again to continue from "
        "the last sealed epoch"
    )


class EpochMixedError(BicycleError):
    """Tasks of a stage ran twice, and the next stage read results of both attempts."""

    code = "BIC-1805"
    message = (
        "epoch {epoch} of job {job!r}: the output of task {subtask} of stage {level} was lost and "
        "recomputed after other tasks had read it"
    )
    fix = (
        "no action needed: the whole epoch runs again; if the error repeats, check the hosts for "
        "failures"
    )


BATCH_MODE_ENDLESS = BicycleError.row(
    "BIC-1806",
    "job {job!r} runs in batch mode, but these sources are unbounded: {sources_text}",
    cause="A job runs in batch mode, but some of its sources never end.",
    fix=(
        "make the sources bounded (no follow for files, a count for generators, bounded() for "
        "topics), or run the job with --mode streaming"
    ),
)
KEY_GROUP_CONFLICT = BicycleError.row(
    "BIC-1804",
    "the consumers of key_by {vertex!r} request different numbers of key groups: {counts}",
    cause="Consumers of one keyed stream request different numbers of key groups.",
    fix=(
        "set the same max_parallelism for all consumers of one key_by, or call key_by for each "
        "consumer"
    ),
)
PARTITION_CONFLICT = BicycleError.row(
    "BIC-1809",
    "the function of partition_custom {operator!r} ({made}) cannot choose a subtask: {problem}",
    cause="The consumers of a ``partition_custom`` have no common number of subtasks.",
    fix=(
        "set the same parallelism for all operators directly after the call, or call "
        "partition_custom for each of them; in a loop, call it on the result of iterate()"
    ),
)
REPLAY_INPUT_GONE = BicycleError.row(
    "BIC-1870",
    "source {source!r} cannot read {shard!r} from {start} to {end} again: {reason}",
    cause="The input of an epoch is no longer available, so the epoch cannot be run again.",
    fix=(
        "replay a newer epoch. A socket source retains the input of recent epochs "
        "(journal_epochs_min), a topic retains messages according to its retention"
    ),
)
REPLAY_GRAPH_CHANGED = BicycleError.row(
    "BIC-1871",
    "epoch {epoch} read sources that are not in the graph: {missing}; sources of the graph: "
    "{known_text}",
    cause="The current plugin lacks sources that an epoch read.",
    fix="select the plugin that ran the epoch, in a version with the same sources, with --plugin",
)
SHADOW_OUTRUN = BicycleError.row(
    "BIC-1872",
    "the new version of job {job!r} needs epoch {epoch}, which the job no longer retains",
    cause="The new version of a job follows so slowly that the job has removed the next epochs.",
    fix="provide more CPU and memory for the new version, or upgrade with the strategy stop-and-go",
)
SHADOW_ASTRAY = BicycleError.row(
    "BIC-1873",
    "the new version of job {job!r} differs from the job at epoch {epoch}: {reason}",
    cause="In a blue-green upgrade, the new version of a job read different input than the job.",
    fix=(
        "start the upgrade again; if the version reads its input differently, upgrade with the "
        "strategy stop-and-go"
    ),
)
WIDTH_OPERATOR_UNKNOWN = BicycleError.row(
    "BIC-1840",
    "job {job!r} has no operator {operator!r}; its operators: {known_text}",
    cause="A parallelism was requested for an unknown operator.",
    fix="use the uid of an operator, as shown by `bicycle status {job}`",
)
WIDTH_REFUSED = BicycleError.row(
    "BIC-1841",
    "parallelism of operator {operator!r} of job {job!r} must be between 1 and {limit}, got "
    "{found}; it remains {now}",
    cause="The requested parallelism of an operator is out of bounds.",
    fix=(
        "request a lower parallelism. The limit is max_parallelism of the operator, which is fixed "
        "with its state, or 1 for a source that cannot be split"
    ),
)
RESCALE_FAILED = BicycleError.row(
    "BIC-1842",
    "job {job!r} cannot be rescaled and continues with its previous parallelism: {reason}",
    cause=(
        "The first epoch with a new parallelism failed; the job returned to the previous "
        "parallelism."
    ),
    fix="{hint}",
)
DEAD_LETTER_NOT_REPLAYABLE = BicycleError.row(
    "BIC-1880",
    "dead letter {letter!r} of operator {operator!r} cannot be replayed: {reason}",
    cause="A dead letter does not contain a record that an operator of the job can process.",
    fix=(
        "see the letter with `bicycle dlq show`, and add its content to the input of the job by "
        "other means; no letter was replayed"
    ),
)
LETTERS_NOT_REPLAYED = BicycleError.row(
    "BIC-1881",
    "{count} dead letter(s) of job {job!r} were not replayed: {reason}; the job continues as "
    "before ({cause})",
    cause="The epoch that replayed dead letters failed and was discarded.",
    fix="{hint}",
)
