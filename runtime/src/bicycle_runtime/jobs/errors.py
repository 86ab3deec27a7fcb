"""Errors in the life of a job: names, locks, processes, guarantees."""

from bicycle_sdk.errors import BicycleError


class JobRunningError(BicycleError):
    """Another process of this machine runs the job."""

    code = "BIC-1901"
    message = "job {job!r} already runs as process {pid} ({location}); nothing was started"
    fix = "stop that process (`bicycle stop {job}`), or choose another --name or --checkpoint-dir"


JOB_NOT_FOUND = BicycleError.row(
    "BIC-1902",
    "job {job!r} not found{suggestion}; known: {known_text}",
    cause="No job of this name was ever started in this home.",
    fix="run `bicycle list`; the variable BICYCLE_HOME sets the home directory, here {home}",
)
CHECKPOINT_VERSION_UNKNOWN = BicycleError.row(
    "BIC-1903",
    "checkpoint in {url} must have format version {expected}, got {found}",
    cause="A newer version of the runtime wrote the checkpoint.",
    fix="use the version of bicycle-runtime that wrote it, or another checkpoint directory",
)
NOTHING_TO_FOLLOW = BicycleError.row(
    "BIC-1905",
    "plugin {plugin!r} has no file sources to follow; its sources are {sources}",
    cause="``--follow`` was given for a job without file sources.",
    fix="remove --follow; sockets and generators are always unbounded",
)
NO_RETENTION = BicycleError.row(
    "BIC-1917",
    "plugin {plugin!r} has no sources that can lose input; its sources are {sources}",
    cause="``--on-data-loss`` was given for a job whose sources cannot lose input.",
    fix="remove --on-data-loss; it applies to topics with retention",
)
JOB_LOST = BicycleError.row(
    "BIC-1906",
    "process {pid} of job {job!r} ended without a result; last seen {seen}",
    cause="The process of a job, or its machine, was killed before it could report a result.",
    fix=(
        "run or submit the job again with the same name; it continues after the last sealed epoch. "
        "`bicycle replay {job} --epoch next` runs the interrupted epoch"
    ),
)
STOP_TIMED_OUT = BicycleError.row(
    "BIC-1907",
    "job {job!r} (process {pid}) has not ended {waited_ms:duration} after the request to stop",
    cause="A job did not end in time after a request to stop.",
    fix=(
        "wait and check `bicycle status {job}`, or end the job immediately with `bicycle cancel "
        "{job}`"
    ),
)
JAVA_TOO_OLD = BicycleError.row(
    "BIC-1908",
    "Java for Spark must be version {expected} or newer, got {found} ({path})",
    cause="The Java on this host cannot run Spark.",
    fix="install a newer Java and set JAVA_HOME or PATH to it",
)
GUARANTEE_TOO_WEAK = BicycleError.row(
    "BIC-1909",
    "plugin {plugin!r} guarantees {found} end to end, but {wanted} is required; the weakest "
    "part is: {link}",
    cause="The job guarantees less than required.",
    fix="use another connector there (file sinks are exactly-once), or require less",
)
INSPECTION_FAILED = BicycleError.row(
    "BIC-1910",
    "the functions of plugin {plugin!r} cannot be inspected: {detail}",
    cause="The process that inspects the functions of a plugin returned no result.",
    fix="{hint}",
)
SCAFFOLD_REFUSED = BicycleError.row(
    "BIC-1911",
    "plugin project {name!r} cannot be created: {problem}",
    cause="A plugin project cannot be created with this name or in this folder.",
    fix="{hint}",
)
DRIVER_ENDED = BicycleError.row(
    "BIC-1914",
    "the process of job {job!r} ended with {how} before the job started:\n{log_tail}",
    cause="The process of a submitted job ended before its first report.",
    fix="see the whole log with `bicycle logs {job}`",
)


class StatusFormatError(BicycleError):
    """The status file of a job cannot be read."""

    code = "BIC-1915"
    message = "status file {path!r} is not readable: {reason}"
    fix = "remove the file; the checkpoint of the job is not affected"


STATE_WOULD_BE_LOST = BicycleError.row(
    "BIC-1955",
    "a start from epoch {epoch} of {url} would drop {lost_count} and reject {refused_count} "
    "states and operators; nothing was started: {reasons}",
    cause="Sealed state would be dropped or cannot be read; ``changes`` lists every state.",
    fix=(
        "restore the previous declarations, add aliases, or add a schema version with a migration "
        "hook; --allow-dropped-state discards the dropped states"
    ),
)
DOCTOR_FOUND_FAULTS = BicycleError.row(
    "BIC-1916",
    "{count} of {total} checks failed: {names}",
    cause="A requirement for running jobs is not met.",
    fix="apply the fix below each failed check, then run `bicycle doctor` again",
)


class JobNotRunningError(BicycleError):
    """A request requires a running job, and the job is not running."""

    code = "BIC-1934"
    message = "job {job!r} must be running for a {kind}, but is {state}"
    fix = "start the job, or choose a job that `bicycle list` shows as RUNNING"


REQUEST_TIMED_OUT = BicycleError.row(
    "BIC-1935",
    "job {job!r} did not complete the requested {kind} within {waited_ms:duration}{phase_text}",
    cause="A running job did not complete a request in time; the request was withdrawn.",
    fix=(
        "requests are handled between two epochs: check with `bicycle status {job}` whether epochs "
        "complete"
    ),
)
REQUEST_CUT_SHORT = BicycleError.row(
    "BIC-1976",
    "driver of job {job!r} ended during a {kind}; the request is not repeated, and the job "
    "continues from its last sealed epoch",
    cause=(
        "A request may have ended the driver, such as a rescale that needs more memory than the "
        "machine has."
    ),
    fix="check with `bicycle logs {job}` how the driver ended before you repeat the request",
)
REQUEST_UNKNOWN = BicycleError.row(
    "BIC-1936",
    "the job does not support the request {kind}; supported: {known_text}",
    cause="A job does not know a request, because its runtime is older than the command.",
    fix="stop the job and start it again with the runtime of this command",
)
FOREIGN_SAVEPOINT = BicycleError.row(
    "BIC-1937",
    "{url} was not created by this home ({home}), and a start from it loads pickles, which may "
    "run any code",
    cause="A job is started from state that another home created; loading it may run any code.",
    fix=(
        "add --trust if you trust its creator, --savepoint-key FILE if it was signed with a key "
        "that you have, or --no-pickle to load no pickles; nothing was read or copied"
    ),
)
SAVEPOINT_KEY_UNUSABLE = BicycleError.row(
    "BIC-1938",
    "savepoint key {path} cannot be used: {problem}",
    cause="The key for signatures of savepoints cannot be used.",
    fix="use a file with at least 16 random bytes, such as the output of `openssl rand -hex 32`",
)
RESCALE_REQUEST_UNREADABLE = BicycleError.row(
    "BIC-1950",
    "rescale request of the job is invalid: {reason}",
    cause="A job received a request to rescale in an unknown format.",
    fix="use `bicycle rescale` of the runtime that started the job",
)
OPERATOR_UNKNOWN = BicycleError.row(
    "BIC-1930",
    "operator {operator!r} has no state in epoch {epoch}; operators with state: {known_text}",
    cause="State was requested from an operator without state.",
    fix="choose an operator with state; `bicycle state ls` shows the state of each operator",
)
EXPORT_REFUSED = BicycleError.row(
    "BIC-1931",
    "state cannot be exported to {path!r}: {problem}",
    cause="State cannot be written to the given file.",
    fix="{hint}",
)
STATE_UNLOADABLE = BicycleError.row(
    "BIC-1933",
    "values cannot be loaded with the classes of plugin {plugin!r}: {detail}",
    cause="The process that loads values with the classes of a plugin returned no result.",
    fix="remove --plugin; values of its classes are then shown by their type",
)
DRIVER_DIED = BicycleError.row(
    "BIC-1973",
    "driver of job {job!r} (process {pid}) ended with {how} after epoch {epoch}",
    cause="The driver of a submitted job ended without a report.",
    fix=(
        "check the end of `bicycle logs {job}`; SIGKILL often means too little memory. A "
        "supervisor restarts the driver according to the restart strategy of the job; if all "
        "attempts fail, submit the job again to continue from its last sealed epoch"
    ),
)


class StalledError(BicycleError):
    """A phase of a job made no progress for too long, and the attempt was ended."""

    code = "BIC-1974"
    message = "job {job!r} made no progress for {waited_ms:duration} while {phase} ({target})"
    fix = (
        "check whether the named target responds (storage, source, sink, a host of the cluster, a "
        "call in a function); --watchdog-timeout-ms and --epoch-stall-timeout-ms set the limits"
    )


EPOCH_NOT_REPLAYABLE = BicycleError.row(
    "BIC-1970",
    "epoch {epoch} cannot be replayed: {problem}; available epochs: {known_text}",
    cause="An epoch cannot be replayed: it was removed, or its orders were not recorded.",
    fix="choose an available epoch with --epoch; --retained-epochs of a run retains more epochs",
)
REPLAY_OPERATOR_UNKNOWN = BicycleError.row(
    "BIC-1975",
    "operator {operator!r} did not run in epoch {epoch}; available operators: {known_text}",
    cause="A replay was limited to an operator that the job does not have.",
    fix="choose an available operator with --operator",
)
REPLAY_PLUGIN_UNKNOWN = BicycleError.row(
    "BIC-1971",
    "checkpoint {url} does not record the plugin of the job",
    cause="The plugin that ran the job is unknown.",
    fix="set the plugin with --plugin, and its parameters with --set",
)
REPLAY_ENDED = BicycleError.row(
    "BIC-1972",
    "the process that replayed epoch {epoch} ended with {how}",
    cause="The process of a replay ended before it could report a result.",
    fix=(
        "a function of the plugin ends its process, or uses all memory: replay with --pdb and step "
        "through it"
    ),
)
ORIGIN_RUNNING = BicycleError.row(
    "BIC-1940",
    "{url} is the checkpoint directory of a running job (process {pid} on {host})",
    cause="A job is started from the checkpoint of another running job.",
    fix="stop that job first, or start from a savepoint of it (`bicycle savepoint create`)",
)
EXTENSION_HOOK_FAILED = BicycleError.row(
    "BIC-1942",
    "extension {extension!r}: {part!r} of its {kind} failed: {reason}; the job continues",
    cause="A listener or a reporter of an extension raised; the job is not affected.",
    fix="repair or remove the extension; consecutive identical failures are logged once",
)
SAVEPOINT_FAILED = BicycleError.row(
    "BIC-1941",
    "savepoint of job {job!r} failed: {reason}; the job is not affected",
    cause="A running job could not create a savepoint; the job continues.",
    fix="check the log of the job with `bicycle logs {job}`, then repeat the request",
)
DEAD_LETTER_UNKNOWN = BicycleError.row(
    "BIC-1943",
    "dead letter {letter!r} of job {job!r} not found",
    cause="The dead letter does not exist, or its file was removed.",
    fix="run `bicycle dlq list {job}`",
)
DEAD_LETTER_REPLAYED = BicycleError.row(
    "BIC-1960",
    "dead letter {letter!r} of job {job!r} was already replayed in epoch {epoch}; nothing was "
    "replayed",
    cause="A dead letter would be replayed twice, and its record would count twice.",
    fix=(
        "remove it from the request. If its record failed again, a newer letter contains it: run "
        "`bicycle dlq list {job}`"
    ),
)
DEAD_LETTERS_NOT_LOADED = BicycleError.row(
    "BIC-1961",
    "job {job!r} runs with --no-pickle, but dead letters contain their records as pickles; "
    "nothing was replayed",
    cause="A job that loads no pickles cannot replay dead letters.",
    fix=(
        "add the records to the input of the job by other means: `bicycle dlq show {job} LETTER "
        "--reveal` shows their origin"
    ),
)
LETTER_REQUEST_UNREADABLE = BicycleError.row(
    "BIC-1962",
    "replay request of the job is invalid: {reason}",
    cause="A command of another version sent a running job a request to replay dead letters.",
    fix="use the version of bicycle-runtime that runs the job",
)
UPGRADE_NOT_PLANNED = BicycleError.row(
    "BIC-1944",
    "upgrade of job {job!r} could not be planned: {reason}; the job continues",
    cause="The process that compares a new version with the state of a job returned no result.",
    fix="check with `bicycle plan --from` whether the new version can be loaded",
)
UPGRADE_UNDERWAY = BicycleError.row(
    "BIC-1945",
    "job {job!r} is already being upgraded, at the step {step!r}",
    cause="A job is already being upgraded; upgrades of a job cannot overlap.",
    fix="wait for the end of the upgrade, or check the operations of the job",
)
VERSION_FAILED = BicycleError.row(
    "BIC-1946",
    "version {version} of job {job!r} is not stable: {reason}",
    cause="A new version failed, restarted, or did not reach RUNNING during its trial.",
    fix="check the log of the job with `bicycle logs {job}`",
)
BLUE_GREEN_REFUSED = BicycleError.row(
    "BIC-1949",
    "job {job!r} does not support a blue-green upgrade, because a second version cannot follow "
    "it: {reason}; the job continues",
    cause="A blue-green upgrade needs a new version that can read exactly the input of its job.",
    fix="upgrade with --strategy stop-and-go",
)
SHADOW_FAILED = BicycleError.row(
    "BIC-1951",
    "upgrade of job {job!r} was aborted, and the job was not changed; the new version failed "
    "while it followed the job: {reason}",
    cause="A new version failed before the switch, so the job is unchanged.",
    fix="correct the new version, and upgrade again",
)
SHADOW_LEFT_BEHIND = BicycleError.row(
    "BIC-1952",
    "the new version cannot follow job {job!r}: {reason}",
    cause="A version that follows its job is too slow, was killed, or the job has ended.",
    fix=(
        "check the log of the job with `bicycle logs {job}`; a slow version needs more CPU and "
        "memory, or a longer --catch-up-ms"
    ),
)
UPGRADE_FAILED = BicycleError.row(
    "BIC-1947",
    "upgrade of job {job!r} failed and was rolled back; the previous version runs again: {reason}",
    cause="A new version failed, and the previous version continues after the last sealed epoch.",
    fix="correct the new version, and upgrade again",
)
UPGRADE_STUCK = BicycleError.row(
    "BIC-1948",
    "upgrade of job {job!r} failed ({reason}), and its previous version cannot continue "
    "({second}); the job does not run",
    cause=(
        "A new version failed, and the previous version cannot read the epochs that it sealed, or "
        "cannot run."
    ),
    fix=(
        "correct one of the versions and submit it as {job}, or start from the savepoint "
        "{savepoint}"
    ),
)
