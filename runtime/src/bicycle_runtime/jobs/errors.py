"""Errors in the life of a job: names, locks, processes, what a job promises."""

from __future__ import annotations

from bicycle_sdk.errors import BicycleError


class JobRunningError(BicycleError):
    """Another process of this machine runs the job."""

    code = "BIC-1901"
    message = "job {job!r} runs already, as process {pid} ({place}); nothing was started"
    fix = "stop that process (`bicycle stop {job}`), or give another --name or --checkpoint-dir"


JOB_NOT_FOUND = BicycleError.row(
    "BIC-1902",
    "no job is called {job!r}{suggestion}; known: {known_text}",
    cause="No job of this name was ever started with this home.",
    fix="see `bicycle list`; BICYCLE_HOME says where jobs are kept ({home})",
)
CHECKPOINT_VERSION_UNKNOWN = BicycleError.row(
    "BIC-1903",
    "the checkpoint in {url} has format version {found}, this runtime reads {expected}",
    cause="The checkpoint was written by a newer version.",
    fix="use the version of bicycle-runtime that wrote it, or another checkpoint directory",
)
NOTHING_TO_FOLLOW = BicycleError.row(
    "BIC-1905",
    "plugin {plugin!r} reads no files that could be followed; its sources are {sources}",
    cause="``--follow`` was given for a job that reads no files.",
    fix="leave --follow out; sockets and generators never end by themselves",
)
NO_RETENTION = BicycleError.row(
    "BIC-1917",
    "plugin {plugin!r} reads nothing that could be removed before it is read; its sources are "
    "{sources}",
    cause="``--on-data-loss`` was given for a job none of whose sources can lose input.",
    fix="leave --on-data-loss out; it is for topics with retention",
)
JOB_LOST = BicycleError.row(
    "BIC-1906",
    "the process of job {job!r} ({pid}) is gone without a result; it was last seen {seen}",
    cause="The process of a job is gone and left no last word: it, or the machine, was killed.",
    fix="run or submit it again with the same name: it goes on after the last sealed epoch; "
    "`bicycle replay {job} --epoch next` runs the one in which it ended",
)
STOP_TIMED_OUT = BicycleError.row(
    "BIC-1907",
    "job {job!r} (process {pid}) has not ended {waited_ms:duration} after it was asked to stop",
    cause="A job did not end in time after it was asked to.",
    fix="wait and look at `bicycle status {job}`, or end it at once with `bicycle cancel {job}`",
)
JAVA_TOO_OLD = BicycleError.row(
    "BIC-1908",
    "Java {found} ({path}) is too old for Spark; {expected} or newer is needed",
    cause="The Java that was found cannot run Spark.",
    fix="install a newer Java and let JAVA_HOME or PATH lead to it",
)
GUARANTEE_TOO_WEAK = BicycleError.row(
    "BIC-1909",
    "plugin {plugin!r} is {found} end to end, {wanted} was asked for; the weakest link: {link}",
    cause="The job promises less than was asked for.",
    fix="use another connector there (file sinks are exactly-once), or ask for less",
)
INSPECTION_FAILED = BicycleError.row(
    "BIC-1910",
    "the functions of plugin {plugin!r} cannot be inspected: {detail}",
    cause="The process that looks at a plugin's functions gave no answer.",
    fix="run `bicycle plugins check {plugin}`; the functions must be loadable in a new process",
)
SCAFFOLD_REFUSED = BicycleError.row(
    "BIC-1911",
    "cannot make a plugin project {name!r}: {problem}",
    cause="A plugin project cannot be made under this name or at this place.",
    fix="{hint}",
)
HOME_UNUSABLE = BicycleError.row(
    "BIC-1912",
    "the home {path} cannot be used: {reason}",
    cause="The home directory cannot be used.",
    fix="set BICYCLE_HOME to a directory that this user may write",
)
DRIVER_ENDED = BicycleError.row(
    "BIC-1914",
    "the process of job {job!r} ended with {how} before the job began:\n{log_tail}",
    cause="The process of a submitted job ended before it said anything.",
    fix="see the whole log with `bicycle logs {job}`",
)


class StatusFormatError(BicycleError):
    """The status file of a job cannot be read."""

    code = "BIC-1915"
    message = "status file {path!r} is not readable: {reason}"
    fix = "remove the file; the checkpoint of the job is not affected"


STATE_WOULD_BE_LOST = BicycleError.row(
    "BIC-1955",
    "a start from epoch {epoch} of {url} would lose {lost_count} and refuse {refused_count} of "
    "its states and operators; nothing was started: {reasons}",
    cause="Sealed state would be lost, or could not be read; ``changes`` tells it state by state.",
    fix="declare them as they were, give them aliases or a version with a hook that migrates; "
    "--allow-dropped-state gives up what would be lost",
)
DOCTOR_FOUND_FAULTS = BicycleError.row(
    "BIC-1916",
    "{count} of {total} checks failed: {names}",
    cause="Something that running a job needs is missing.",
    fix="do what the line below each failed check says, then run `bicycle doctor` again",
)


class JobNotRunningError(BicycleError):
    """A job is asked for something that only a running job can do."""

    code = "BIC-1934"
    message = "job {job!r} cannot be asked for a {kind}: it is {state}"
    fix = "start the job, or name one that `bicycle list` shows as RUNNING"


REQUEST_TIMED_OUT = BicycleError.row(
    "BIC-1935",
    "job {job!r} did not answer the request for a {kind} within {waited_ms:duration}{phase_text}",
    cause="A running job did not meet a request in time; it was withdrawn.",
    fix="requests are met between two epochs: see with `bicycle status {job}` whether epochs end",
)
REQUEST_CUT_SHORT = BicycleError.row(
    "BIC-1976",
    "the driver of job {job!r} ended in the middle of a {kind}; it is not tried again, and the job "
    "goes on from its last sealed epoch",
    cause="A request may have ended the driver, as a rescale for which the machine lacks memory.",
    fix="see in `bicycle logs {job}` how the driver ended before you ask again",
)
REQUEST_UNKNOWN = BicycleError.row(
    "BIC-1936",
    "the job cannot do what it is asked for: {kind}; it can do: {known_text}",
    cause="A job does not know what it is asked for; its runtime is older than the command's.",
    fix="stop the job and start it again with the runtime that this command belongs to",
)
FOREIGN_SAVEPOINT = BicycleError.row(
    "BIC-1937",
    "{url} was not made by this home ({home}), and beginning with it loads what is pickled "
    "there, which may run any code",
    cause="A job is to begin with state that another home made; loading it may run any code.",
    fix="add --trust if you know who made it, --savepoint-key FILE if it was signed with a key "
    "that you have, or --no-pickle to load no pickles; nothing was read or copied",
)
SAVEPOINT_KEY_UNUSABLE = BicycleError.row(
    "BIC-1938",
    "the key of savepoints in {path} cannot be used: {problem}",
    cause="The key that signs savepoints cannot be used.",
    fix="give a file with at least 16 random bytes, such as `openssl rand -hex 32` writes",
)
RESCALE_REQUEST_UNREADABLE = BicycleError.row(
    "BIC-1950",
    "the job does not understand what it is asked to rescale to: {reason}",
    cause="A job is asked to rescale in a form that it does not know.",
    fix="use `bicycle rescale` of the runtime that the job was started with",
)
OPERATOR_UNKNOWN = BicycleError.row(
    "BIC-1930",
    "operator {operator!r} has no state in epoch {epoch}; those that have: {known_text}",
    cause="Somebody asks for the state of an operator that has none.",
    fix="name one of them; `bicycle state ls` shows what each of them keeps",
)
EXPORT_REFUSED = BicycleError.row(
    "BIC-1931",
    "state cannot be exported to {path!r}: {problem}",
    cause="State cannot be written to the file that is named.",
    fix="{hint}",
)
STATE_UNLOADABLE = BicycleError.row(
    "BIC-1933",
    "values cannot be loaded with the classes of plugin {plugin!r}: {detail}",
    cause="The process that loads values with the plugin's classes gave no answer.",
    fix="leave --plugin out; values of its classes are then shown by their type",
)
DRIVER_DIED = BicycleError.row(
    "BIC-1973",
    "the driver of job {job!r} (process {pid}) died with {how}, after epoch {epoch}",
    cause="The driver of a submitted job died without a last word.",
    fix="look at the end of `bicycle logs {job}`; SIGKILL is often a lack of memory. A supervisor "
    "starts it again as its restart strategy says; once that is used up, submit it again: it "
    "goes on after its last sealed epoch",
)


class StalledError(BicycleError):
    """A phase of a job made no progress for too long, and the attempt was ended."""

    code = "BIC-1974"
    message = "job {job!r} made no progress for {waited_ms:duration} while {phase} ({target})"
    fix = (
        "see whether what is named answers (storage, source, sink, a host of the cluster, a call "
        "in a function); --watchdog-timeout-ms and --epoch-stall-timeout-ms set the limits"
    )


EPOCH_NOT_REPLAYABLE = BicycleError.row(
    "BIC-1970",
    "epoch {epoch} cannot be replayed: {problem}; epochs to choose from: {known_text}",
    cause="An epoch cannot be run again: it is gone, or nobody noted how it was run.",
    fix="name one of them with --epoch; --retained-epochs of a run keeps more",
)
REPLAY_OPERATOR_UNKNOWN = BicycleError.row(
    "BIC-1975",
    "epoch {epoch} was run by no operator {operator!r}; there are: {known_text}",
    cause="A replay is to show, or to stop in, an operator that the job does not have.",
    fix="name one of them with --operator",
)
REPLAY_PLUGIN_UNKNOWN = BicycleError.row(
    "BIC-1971",
    "the checkpoint {url} does not say which plugin ran the job",
    cause="Nobody knows which plugin ran the job.",
    fix="name the plugin with --plugin, and its parameters with --set",
)
REPLAY_ENDED = BicycleError.row(
    "BIC-1972",
    "the process that replayed epoch {epoch} ended with {how}",
    cause="The process of a replay ended before it could report.",
    fix="a function of the plugin ends its process, or takes all memory: replay with --pdb and "
    "step through it",
)
ORIGIN_RUNNING = BicycleError.row(
    "BIC-1940",
    "{url} is the checkpoint directory of a job that runs, as process {pid} on {host}",
    cause="A job is to begin with the checkpoint of another one that runs.",
    fix="stop it first, or begin with a savepoint of it (`bicycle savepoint create`)",
)
EXTENSION_HOOK_FAILED = BicycleError.row(
    "BIC-1942",
    "extension {extension!r}: {part!r} of its {kind} failed: {reason}; the job goes on",
    cause="A listener or a reporter of an extension raised; the job is not affected.",
    fix="repair or remove the extension; the same failure is logged once in a row",
)
SAVEPOINT_FAILED = BicycleError.row(
    "BIC-1941",
    "job {job!r} could not take a savepoint: {reason}; the job is not affected",
    cause="A running job could not take a savepoint; the job goes on.",
    fix="see the log of the job with `bicycle logs {job}`, and ask again",
)
DEAD_LETTER_UNKNOWN = BicycleError.row(
    "BIC-1943",
    "job {job!r} has no dead letter {letter!r}",
    cause="There is no dead letter of this name, or its file was removed.",
    fix="see `bicycle dlq list {job}`",
)
DEAD_LETTER_REPLAYED = BicycleError.row(
    "BIC-1960",
    "dead letter {letter!r} of job {job!r} was replayed in epoch {epoch} already; nothing was "
    "replayed",
    cause="A dead letter was to be replayed a second time, and its record would count twice.",
    fix="leave it out. Where its record was refused again, a newer letter holds it: see "
    "`bicycle dlq list {job}`",
)
DEAD_LETTERS_NOT_LOADED = BicycleError.row(
    "BIC-1961",
    "job {job!r} runs with --no-pickle, and dead letters hold their records as pickles; nothing "
    "was replayed",
    cause="A job that loads nothing from pickles was to replay dead letters.",
    fix="give the records to the job's input by other means: `bicycle dlq show {job} LETTER "
    "--reveal` tells what they came from",
)
LETTER_REQUEST_UNREADABLE = BicycleError.row(
    "BIC-1962",
    "what was asked of the job cannot be understood: {reason}",
    cause="A command of another version asked a running job to replay dead letters.",
    fix="use the version of bicycle-runtime that runs the job",
)
UPGRADE_NOT_PLANNED = BicycleError.row(
    "BIC-1944",
    "the upgrade of job {job!r} could not be planned: {reason}; the job runs on",
    cause="The process that compares a new version with the state of a job gave no answer.",
    fix="see whether the new version can be loaded at all: `bicycle plan --from`",
)
UPGRADE_UNDERWAY = BicycleError.row(
    "BIC-1945",
    "an upgrade of job {job!r} is underway, at the step {step!r}",
    cause="A job is upgraded already; one upgrade at a time has it.",
    fix="wait for its end, or see the operations of the job",
)
VERSION_FAILED = BicycleError.row(
    "BIC-1946",
    "version {version} of job {job!r} does not stay: {reason}",
    cause="A new version failed, was restarted, or did not come to run while it was watched.",
    fix="see the log of the job with `bicycle logs {job}`",
)
BLUE_GREEN_REFUSED = BicycleError.row(
    "BIC-1949",
    "no version can follow job {job!r}, so there is no blue-green upgrade: {reason}; the job runs "
    "on",
    cause="A new version is to follow its job before it goes on, and does not read the very input "
    "of the job.",
    fix="upgrade with --strategy stop-and-go",
)
SHADOW_FAILED = BicycleError.row(
    "BIC-1951",
    "the upgrade of job {job!r} was given up, and nothing of the job was changed; the new version "
    "did not get through following it: {reason}",
    cause="A new version failed before its turn came, so nothing has changed for the job.",
    fix="correct the new version, and upgrade again",
)
SHADOW_LEFT_BEHIND = BicycleError.row(
    "BIC-1952",
    "the new version does not follow job {job!r}: {reason}",
    cause="A version that follows its job is too slow, was killed, or the job has ended.",
    fix="see the log of the job with `bicycle logs {job}`; a slow one needs more of the machine, "
    "or --catch-up-ms",
)
UPGRADE_FAILED = BicycleError.row(
    "BIC-1947",
    "the upgrade of job {job!r} failed and was taken back, its former version runs again: {reason}",
    cause="A new version failed, and the former one has gone on behind what was sealed.",
    fix="correct the new version, and upgrade again",
)
UPGRADE_STUCK = BicycleError.row(
    "BIC-1948",
    "the upgrade of job {job!r} failed ({reason}), and its former version cannot go on either "
    "({second}); the job does not run",
    cause="A new version failed, and the former one cannot read what it has sealed, or cannot run.",
    fix="correct one of them and submit it under the name {job}, or begin with the savepoint "
    "{savepoint}",
)
