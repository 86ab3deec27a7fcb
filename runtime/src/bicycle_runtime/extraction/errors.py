"""Errors of finding plugins and of extracting their graphs.

Most are raised in the child process, sent home as plain data and raised again by ``extract``, which
adds ``stderr_tail`` and ``stdout_tail`` (lists of lines). ``location`` is the user's ``file:line``
wherever it is known, else the entry point. This module does not import the child's machinery.
"""

from bicycle_sdk.errors import BicycleError


class ExtractionError(BicycleError):
    """The child process of a plugin returned no graph."""

    code = "BIC-1600"
    message = "plugin {plugin!r} of {dist} returned no graph"
    fix = "run `bicycle plugins check` to see the reason"


PLUGIN_NOT_FOUND = BicycleError.row(
    "BIC-1601",
    "plugin {name!r} not found{suggestion}; installed: {known_text}",
    cause="No installed plugin has this name. ``close_matches`` and ``known`` are lists of names.",
    fix="install the wheel of the plugin into this environment, or use an installed name",
)
PLUGIN_REFUSED = BicycleError.row(
    "BIC-1602",
    "plugin {name!r} cannot be used: {reason}",
    cause="A plugin is installed but cannot be used; ``sources`` lists the distributions.",
    fix="correct or uninstall {source_text}",
)
CHILD_NOT_STARTED = ExtractionError.row(
    "BIC-1603",
    "the process for plugin {plugin!r} of {dist} did not start with {python}: {detail}",
    cause=(
        "The interpreter of the child process did not start, or a required module is missing in it."
    ),
    fix="check that this interpreter starts and has bicycle-runtime installed",
)
PLUGIN_RAISED = ExtractionError.row(
    "BIC-1604",
    "{location}: {exception_type}: {exception_message}; raised {phase} plugin {plugin!r} of {dist}",
    cause="User code raised. ``traceback`` is a list of lines without frames of Bicycle.",
    fix="correct the line above{hint}; nothing was started",
)
PLUGIN_EXITED = ExtractionError.row(
    "BIC-1605",
    "{location}: the process ended with exit code {exit_code} ({how}) "
    "{phase} plugin {plugin!r} of {dist}",
    cause='User code ended its process. ``how`` is ``"sys.exit"`` or ``"process end"``.',
    fix="remove the exit: raise an exception to report a fault, or return to finish",
)
PLUGIN_KILLED = ExtractionError.row(
    "BIC-1606",
    "{location}: the process was ended by {signal_name} {phase} plugin {plugin!r} of {dist}",
    cause="A signal ended the child process: a crash of native code, or a kill.",
    fix=(
        "check native code at the line above; SIGKILL can also mean that the machine ran out of "
        "memory"
    ),
)
PLUGIN_TIMED_OUT = ExtractionError.row(
    "BIC-1607",
    "{location}: no result after {limit_ms:duration} {phase} plugin {plugin!r} of {dist}; the "
    "process was killed",
    cause=(
        "The child process did not finish in time. ``traceback`` shows its last calls, newest last."
    ),
    fix=(
        "move slow work from the construction of the graph to open() of a function, or raise the "
        "time limit"
    ),
)
PLUGIN_OUT_OF_MEMORY = ExtractionError.row(
    "BIC-1608",
    "{location}: out of memory (limit {limit_bytes} bytes) {phase} plugin {plugin!r} of {dist}",
    cause="User code requested more memory than the limit of the child process.",
    fix="load large data in open() of a function, not while the graph is built, or raise the limit",
)
RESULT_TOO_LARGE = ExtractionError.row(
    "BIC-1609",
    "plugin {plugin!r} of {dist} returned {size_bytes} bytes, the limit is {limit_bytes}; the "
    "largest part is {payload!r}",
    cause="Graph and functions together exceed the size limit; ``payload`` names the largest part.",
    fix="read the data with a source or in open() instead of capturing it, or raise the limit",
)
RESULT_UNREADABLE = ExtractionError.row(
    "BIC-1610",
    "the result of plugin {plugin!r} of {dist} is not readable: {detail}",
    cause="The data from the result pipe is not one complete frame.",
    fix=(
        "do not write to file descriptors that the plugin did not open; write to sys.stdout or a "
        "file"
    ),
)
ENTRY_POINT_BROKEN = ExtractionError.row(
    "BIC-1611",
    "entry point {target!r} of plugin {plugin!r} of {dist} cannot be loaded: {reason}",
    cause="The entry point names a module or an attribute that does not exist.",
    fix='correct [project.entry-points."bicycle.plugins"] and install the distribution again',
)
PLUGIN_NOT_MARKED = ExtractionError.row(
    "BIC-1612",
    "{location}: {target!r} of {dist} is a {found} without the decorator @bicycle_plugin",
    cause="The entry point names an object without the decorator ``@bicycle_plugin``.",
    fix="add @bicycle_plugin(name={plugin!r}, version=…) to the object, or correct the entry point",
)
MISSING_DEPENDENCY = ExtractionError.row(
    "BIC-1613",
    "{location}: plugin {plugin!r} of {dist} needs the module {module!r}, which is not installed",
    cause="The plugin imports a module that is not installed.",
    fix="install the module in this environment{hint}",
)
UNDECLARED_LIBRARY = ExtractionError.row(
    "BIC-1619",
    "{location}: plugin {plugin!r} of {dist} imports {module!r} without declaring it as a "
    "dependency; only the environment of the runtime contains it",
    cause="A plugin with a separate environment imports a library that is missing in it.",
    fix=(
        "add the library of {module!r} to the dependencies of {dist}, and install it in the "
        "environment of the plugin"
    ),
)
SDK_MISMATCH = ExtractionError.row(
    "BIC-1614",
    "plugin {plugin!r} of {dist} requires {requirement!r}, but bicycle-sdk {found} is installed",
    cause="The plugin requires another version of the SDK than the installed version.",
    fix="install a release of the plugin for bicycle-sdk {found}, or the required SDK",
)
NO_GRAPH = ExtractionError.row(
    "BIC-1615",
    "{location}: plugin {plugin!r} of {dist} returned {found}; expected a job graph",
    cause="The builder of a plugin returned an object that is not a job graph.",
    fix=(
        "build the job on the environment that the builder receives: "
        "env.read_text(…).map(…).print()"
    ),
)

# `name` is what is held, as written in the code; `vertex` and `role` say whose function it
# is.
NOT_SHIPPABLE = ExtractionError.row(
    "BIC-1616",
    "{location}: {role} of operator {vertex!r} cannot be sent to workers: it contains {name!r} "
    "({held}): {reason}",
    cause="A function contains an object that cannot be sent to workers.",
    fix=(
        "create the object in open() of a function class, or inside the function, instead of "
        "capturing it"
    ),
)
BUNDLE_UNREADABLE = BicycleError.row(
    "BIC-1617",
    "job bundle is not readable: {detail}",
    cause="The bytes of a job bundle are damaged or were written by another version.",
    fix=(
        "extract the job again with `bicycle submit`; use the same version of bicycle-runtime on "
        "both sides"
    ),
)
ENVIRONMENT_MISSING = BicycleError.row(
    "BIC-1640",
    "{folder} is not a usable virtual environment: {reason}",
    cause="The folder of a plugin's environment does not contain a working environment.",
    fix="create an environment with `python -m venv {folder}`, and install the plugin into it",
)
ENVIRONMENT_FILES_UNKNOWN = BicycleError.row(
    "BIC-1641",
    "the files of {library} cannot be sent to workers: its RECORD lists no files",
    cause="The files of a distribution are not recorded, so it cannot be sent to workers.",
    fix="reinstall it from a wheel with `pip install --force-reinstall --no-deps`",
)
ENVIRONMENT_CONFLICT = BicycleError.row(
    "BIC-1642",
    "plugin {plugin!r} cannot run with this runtime: {asker} requires {requirement}, but "
    "{library} {found} is installed",
    cause="A plugin and the runtime require different versions of a shared library.",
    fix="use releases of the plugin and the runtime that support the same version of {library}",
)
ENVIRONMENT_FOLDER_UNUSABLE = BicycleError.row(
    "BIC-1643",
    "{folder} cannot store the environments of plugins: {reason}",
    cause="The folder in which a host stores the environments of plugins cannot be used.",
    fix="remove the folder, or set TMPDIR of the workers to a folder that only they use",
)
SCRIPT_UNUSABLE = BicycleError.row(
    "BIC-1618",
    "{file}: {problem}",
    cause="A job was given as a file, and the file does not define which job to run.",
    fix="{hint}",
)
