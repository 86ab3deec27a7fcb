"""Errors in the life of a job: names, locks, processes, what a job promises."""

from __future__ import annotations

from bicycle_sdk.errors import BicycleError

__all__ = [
    "CheckpointVersionError",
    "DoctorError",
    "DriverDiedError",
    "DriverEndedError",
    "EpochNotReplayableError",
    "ExportRefusedError",
    "ForeignSavepointError",
    "GuaranteeError",
    "HomeError",
    "InspectionError",
    "JavaTooOldError",
    "JobLostError",
    "JobNotFoundError",
    "JobNotRunningError",
    "JobRunningError",
    "NoRetentionError",
    "NothingToFollowError",
    "OperatorUnknownError",
    "OriginRunningError",
    "ReplayEndedError",
    "ReplayOperatorError",
    "ReplayPluginError",
    "RequestTimeoutError",
    "RequestUnknownError",
    "RescaleRequestError",
    "SavepointFailedError",
    "SavepointKeyError",
    "ScaffoldError",
    "StalledError",
    "StateChangesError",
    "StateLoadingError",
    "StatusFormatError",
    "StopTimeoutError",
]


class JobRunningError(BicycleError):
    """Another process of this machine runs the job."""

    code = "BIC-1901"
    message = "job {job!r} runs already, as process {pid} ({place}); nothing was started"
    fix = "stop that process (`bicycle stop {job}`), or give another --name or --checkpoint-dir"


class JobNotFoundError(BicycleError):
    """No job of this name was ever started with this home."""

    code = "BIC-1902"
    message = "no job is called {job!r}{suggestion}; known: {known_text}"
    fix = "see `bicycle list`; BICYCLE_HOME says where jobs are kept ({home})"


class CheckpointVersionError(BicycleError):
    """The checkpoint was written by a newer version."""

    code = "BIC-1903"
    message = "the checkpoint in {url} has format version {found}, this runtime reads {expected}"
    fix = "use the version of bicycle-runtime that wrote it, or another checkpoint directory"


class NothingToFollowError(BicycleError):
    """``--follow`` was given for a job that reads no files."""

    code = "BIC-1905"
    message = "plugin {plugin!r} reads no files that could be followed; its sources are {sources}"
    fix = "leave --follow out; sockets and generators never end by themselves"


class NoRetentionError(BicycleError):
    """``--on-data-loss`` was given for a job none of whose sources can lose input."""

    code = "BIC-1917"
    message = (
        "plugin {plugin!r} reads nothing that could be removed before it is read; its sources are "
        "{sources}"
    )
    fix = "leave --on-data-loss out; it is for topics with retention"


class JobLostError(BicycleError):
    """The process of a job is gone and left no last word: it, or the machine, was killed."""

    code = "BIC-1906"
    message = "the process of job {job!r} ({pid}) is gone without a result; it was last seen {seen}"
    fix = (
        "run or submit it again with the same name: it goes on after the last sealed epoch; "
        "`bicycle replay {job} --epoch next` runs the one in which it ended"
    )


class StopTimeoutError(BicycleError):
    """A job did not end in time after it was asked to."""

    code = "BIC-1907"
    message = (
        "job {job!r} (process {pid}) has not ended {waited_ms:duration} after it was asked to stop"
    )
    fix = "wait and look at `bicycle status {job}`, or end it at once with `bicycle cancel {job}`"


class JavaTooOldError(BicycleError):
    """The Java that was found cannot run Spark."""

    code = "BIC-1908"
    message = "Java {found} ({path}) is too old for Spark; {expected} or newer is needed"
    fix = "install a newer Java and let JAVA_HOME or PATH lead to it"


class GuaranteeError(BicycleError):
    """The job promises less than was asked for."""

    code = "BIC-1909"
    message = (
        "plugin {plugin!r} is {found} end to end, {wanted} was asked for; the weakest link: {link}"
    )
    fix = "use another connector there (file sinks are exactly-once), or ask for less"


class InspectionError(BicycleError):
    """The process that looks at a plugin's functions gave no answer."""

    code = "BIC-1910"
    message = "the functions of plugin {plugin!r} cannot be inspected: {detail}"
    fix = "run `bicycle plugins check {plugin}`; the functions must be loadable in a new process"


class ScaffoldError(BicycleError):
    """A plugin project cannot be made under this name or at this place."""

    code = "BIC-1911"
    message = "cannot make a plugin project {name!r}: {problem}"
    fix = "{hint}"


class HomeError(BicycleError):
    """The home directory cannot be used."""

    code = "BIC-1912"
    message = "the home {path} cannot be used: {reason}"
    fix = "set BICYCLE_HOME to a directory that this user may write"


class DriverEndedError(BicycleError):
    """The process of a submitted job ended before it said anything."""

    code = "BIC-1914"
    message = "the process of job {job!r} ended with {how} before the job began:\n{log_tail}"
    fix = "see the whole log with `bicycle logs {job}`"


class StatusFormatError(BicycleError):
    """The status file of a job cannot be read."""

    code = "BIC-1915"
    message = "status file {path!r} is not readable: {reason}"
    fix = "remove the file; the checkpoint of the job is not affected"


class StateChangesError(BicycleError):
    """Sealed state would be lost, or could not be read; ``changes`` tells it state by state."""

    code = "BIC-1955"
    message = (
        "a start from epoch {epoch} of {url} would lose {lost_count} and refuse {refused_count} of "
        "its states and operators; nothing was started"
    )
    fix = (
        "declare them as they were, give them aliases or a version with a hook that migrates; "
        "--allow-dropped-state gives up what would be lost"
    )


class DoctorError(BicycleError):
    """Something that running a job needs is missing."""

    code = "BIC-1916"
    message = "{count} of {total} checks failed: {names}"
    fix = "do what the line below each failed check says, then run `bicycle doctor` again"


class JobNotRunningError(BicycleError):
    """A job is asked for something that only a running job can do."""

    code = "BIC-1934"
    message = "job {job!r} cannot be asked for a {kind}: it is {state}"
    fix = "start the job, or name one that `bicycle list` shows as RUNNING"


class RequestTimeoutError(BicycleError):
    """A running job did not meet a request in time; it was withdrawn."""

    code = "BIC-1935"
    message = "job {job!r} did not answer the request for a {kind} within {waited_ms:duration}"
    fix = "requests are met between two epochs: see with `bicycle status {job}` whether epochs end"


class RequestUnknownError(BicycleError):
    """A job does not know what it is asked for; its runtime is older than the command's."""

    code = "BIC-1936"
    message = "the job cannot do what it is asked for: {kind}; it can do: {known_text}"
    fix = "stop the job and start it again with the runtime that this command belongs to"


class ForeignSavepointError(BicycleError):
    """A job is to begin with state that another home made; loading it may run any code."""

    code = "BIC-1937"
    message = (
        "{url} was not made by this home ({home}), and beginning with it loads what is pickled "
        "there, which may run any code"
    )
    fix = (
        "add --trust if you know who made it, --savepoint-key FILE if it was signed with a key "
        "that you have, or --no-pickle to load no pickles; nothing was read or copied"
    )


class SavepointKeyError(BicycleError):
    """The key that signs savepoints cannot be used."""

    code = "BIC-1938"
    message = "the key of savepoints in {path} cannot be used: {problem}"
    fix = "give a file with at least 16 random bytes, such as `openssl rand -hex 32` writes"


class RescaleRequestError(BicycleError):
    """A job is asked to rescale in a form that it does not know."""

    code = "BIC-1950"
    message = "the job does not understand what it is asked to rescale to: {reason}"
    fix = "use `bicycle rescale` of the runtime that the job was started with"


class OperatorUnknownError(BicycleError):
    """Somebody asks for the state of an operator that has none."""

    code = "BIC-1930"
    message = "operator {operator!r} has no state in epoch {epoch}; those that have: {known_text}"
    fix = "name one of them; `bicycle state ls` shows what each of them keeps"


class ExportRefusedError(BicycleError):
    """State cannot be written to the file that is named."""

    code = "BIC-1931"
    message = "state cannot be exported to {path!r}: {problem}"
    fix = "{hint}"


class StateLoadingError(BicycleError):
    """The process that loads values with the plugin's classes gave no answer."""

    code = "BIC-1933"
    message = "values cannot be loaded with the classes of plugin {plugin!r}: {detail}"
    fix = "leave --plugin out; values of its classes are then shown by their type"


class DriverDiedError(BicycleError):
    """The driver of a submitted job died without a last word."""

    code = "BIC-1973"
    message = "the driver of job {job!r} (process {pid}) died with {how}, after epoch {epoch}"
    fix = (
        "look at the end of `bicycle logs {job}`; SIGKILL is often a lack of memory. A supervisor "
        "starts it again as its restart strategy says; once that is used up, submit it again: it "
        "goes on after its last sealed epoch"
    )


class StalledError(BicycleError):
    """A phase of a job made no progress for too long, and the attempt was ended."""

    code = "BIC-1974"
    message = "job {job!r} made no progress for {waited_ms:duration} while {phase} ({target})"
    fix = (
        "see whether what is named answers (storage, source, sink, a host of the cluster, a call "
        "in a function); --watchdog-timeout-ms and --epoch-stall-timeout-ms set the limits"
    )


class EpochNotReplayableError(BicycleError):
    """An epoch cannot be run again: it is gone, or nobody noted how it was run."""

    code = "BIC-1970"
    message = "epoch {epoch} cannot be replayed: {problem}; epochs to choose from: {known_text}"
    fix = "name one of them with --epoch; --retained-epochs of a run keeps more"


class ReplayOperatorError(BicycleError):
    """A replay is to show, or to stop in, an operator that the job does not have."""

    code = "BIC-1975"
    message = "epoch {epoch} was run by no operator {operator!r}; there are: {known_text}"
    fix = "name one of them with --operator"


class ReplayPluginError(BicycleError):
    """Nobody knows which plugin ran the job."""

    code = "BIC-1971"
    message = "the checkpoint {url} does not say which plugin ran the job"
    fix = "name the plugin with --plugin, and its parameters with --set"


class ReplayEndedError(BicycleError):
    """The process of a replay ended before it could report."""

    code = "BIC-1972"
    message = "the process that replayed epoch {epoch} ended with {how}"
    fix = (
        "a function of the plugin ends its process, or takes all memory: replay with --pdb and "
        "step through it"
    )


class OriginRunningError(BicycleError):
    """A job is to begin with the checkpoint of another one that runs."""

    code = "BIC-1940"
    message = "{url} is the checkpoint directory of a job that runs, as process {pid} on {host}"
    fix = "stop it first, or begin with a savepoint of it (`bicycle savepoint create`)"


class ExtensionHookError(BicycleError):
    """A listener or a reporter of an extension raised; the job is not affected."""

    code = "BIC-1942"
    message = "extension {extension!r}: {part!r} of its {kind} failed: {reason}; the job goes on"
    fix = "repair or remove the extension; the same failure is told once in a row"


class SavepointFailedError(BicycleError):
    """A running job could not take a savepoint; the job goes on."""

    code = "BIC-1941"
    message = "job {job!r} could not take a savepoint: {reason}; the job is not affected"
    fix = "see the log of the job with `bicycle logs {job}`, and ask again"
