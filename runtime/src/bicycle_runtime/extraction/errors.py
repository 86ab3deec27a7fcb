"""Errors of finding plugins and of extracting their graphs.

Most are raised in the child process, sent home as plain data and raised again by ``extract``, which
adds ``stderr_tail`` and ``stdout_tail`` (lists of lines). ``location`` is the user's ``file:line``
wherever it is known, else the entry point. This module does not import the child's machinery.
"""

from __future__ import annotations

from bicycle_sdk.errors import BicycleError


class ExtractionError(BicycleError):
    """A plugin did not give a graph; the base of all errors that come out of a child process."""

    code = "BIC-1600"
    message = "plugin {plugin!r} of {dist} gave no graph"
    fix = "run `bicycle plugins check` to see the reason"


PLUGIN_NOT_FOUND = BicycleError.row(
    "BIC-1601",
    "no plugin is called {name!r}{suggestion}; installed: {known_text}",
    cause="No installed plugin has this name. ``close_matches`` and ``known`` are lists of names.",
    fix="install the wheel that brings it into this environment, or use one of the names above",
)
PLUGIN_REFUSED = BicycleError.row(
    "BIC-1602",
    "plugin {name!r} cannot be used: {reason}",
    cause="The name is installed but cannot be used; ``sources`` lists the distributions.",
    fix="correct or uninstall {source_text}",
)
CHILD_NOT_STARTED = ExtractionError.row(
    "BIC-1603",
    "the process for plugin {plugin!r} of {dist} did not start with {python}: {detail}",
    cause="The interpreter of the child process did not start, or lacks what the child needs.",
    fix="check that this interpreter runs and has bicycle-runtime installed",
)
PLUGIN_RAISED = ExtractionError.row(
    "BIC-1604",
    "{location}: {exception_type}: {exception_message}; raised {phase} plugin {plugin!r} of {dist}",
    cause="User code raised. ``traceback`` is a list of lines without frames of Bicycle.",
    fix="correct the line above; nothing was started",
)
PLUGIN_EXITED = ExtractionError.row(
    "BIC-1605",
    "{location}: the process ended with exit code {exit_code} ({how}) "
    "{phase} plugin {plugin!r} of {dist}",
    cause='User code ended its process. ``how`` is ``"sys.exit"`` or ``"process end"``.',
    fix="remove the exit: raise an exception to report a fault, return to be done",
)
PLUGIN_KILLED = ExtractionError.row(
    "BIC-1606",
    "{location}: the process was ended by {signal_name} {phase} plugin {plugin!r} of {dist}",
    cause="The child process was ended by a signal: a crash of native code, or somebody's kill.",
    fix="look for native code at the line above; SIGKILL may also be a machine without memory",
)
PLUGIN_TIMED_OUT = ExtractionError.row(
    "BIC-1607",
    "{location}: not done after {limit_ms:duration} {phase} plugin {plugin!r} of {dist}; "
    "it was killed",
    cause="The child did not answer in time. ``traceback`` tells where it was, newest call last.",
    fix="do slow work in open() of a function, not while building; or raise the time limit",
)
PLUGIN_OUT_OF_MEMORY = ExtractionError.row(
    "BIC-1608",
    "{location}: out of memory (limit {limit_bytes} bytes) {phase} plugin {plugin!r} of {dist}",
    cause="User code asked for more memory than the child process may have.",
    fix="load large data in open() of a function, not while the graph is built; or raise the limit",
)
RESULT_TOO_LARGE = ExtractionError.row(
    "BIC-1609",
    "plugin {plugin!r} of {dist} gave a result of {size_bytes} bytes, "
    "the limit is {limit_bytes}; the largest part is {payload!r}",
    cause="Graph and functions together are larger than allowed; ``payload`` names the largest "
    "part.",
    fix="read the data with a source or in open() instead of capturing it, or raise the limit",
)
RESULT_UNREADABLE = ExtractionError.row(
    "BIC-1610",
    "the result of plugin {plugin!r} of {dist} is not readable: {detail}",
    cause="What came through the result pipe is not one whole frame.",
    fix="the plugin writes to file descriptors that are not its own; write to sys.stdout or a file",
)
ENTRY_POINT_BROKEN = ExtractionError.row(
    "BIC-1611",
    "entry point {target!r} of plugin {plugin!r} of {dist} leads nowhere: {reason}",
    cause="The entry point names a module or an attribute that does not exist.",
    fix='correct [project.entry-points."bicycle.plugins"] and install the distribution again',
)
PLUGIN_NOT_MARKED = ExtractionError.row(
    "BIC-1612",
    "{location}: {target!r} of {dist} is a {found} without the mark of a plugin",
    cause="The entry point leads to an object without the mark of ``@bicycle_plugin``.",
    fix="put @bicycle_plugin(name={plugin!r}, version=…) on it, or correct the entry point",
)
MISSING_DEPENDENCY = ExtractionError.row(
    "BIC-1613",
    "{location}: plugin {plugin!r} of {dist} needs the module {module!r}, which is not installed",
    cause="The plugin imports a module that is not installed.",
    fix="install it here{hint}",
)
UNDECLARED_LIBRARY = ExtractionError.row(
    "BIC-1619",
    "{location}: plugin {plugin!r} of {dist} uses the module {module!r} without declaring it; only "
    "the runtime has it",
    cause="The plugin has an environment of its own, and imports a library that is not in it.",
    fix="add the library of {module!r} to the dependencies of {dist}, and install it beside it",
)
SDK_MISMATCH = ExtractionError.row(
    "BIC-1614",
    "plugin {plugin!r} of {dist} requires {requirement!r}, installed is bicycle-sdk {found}",
    cause="The plugin asks for another version of the SDK than the one installed.",
    fix="install a release of the plugin for bicycle-sdk {found}, or the SDK it asks for",
)
NO_GRAPH = ExtractionError.row(
    "BIC-1615",
    "{location}: plugin {plugin!r} of {dist} gave {found}, not a job graph",
    cause="Building the plugin gave something that is not a job graph.",
    fix="describe the job on the environment that the builder gets: "
    "env.read_text(…).map(…).print()",
)

# `name` is what is held, as written in the code; `vertex` and `role` say whose function it
# is.
NOT_SHIPPABLE = ExtractionError.row(
    "BIC-1616",
    "{location}: {role} of operator {vertex!r} cannot be sent to workers: it holds {name!r} "
    "({held}): {reason}",
    cause="A function holds something that cannot travel to workers.",
    fix="create it in open() of a function class, or inside the function, instead of capturing it",
)
BUNDLE_UNREADABLE = BicycleError.row(
    "BIC-1617",
    "job bundle is not readable: {detail}",
    cause="The bytes of a job bundle are damaged or of another version.",
    fix="extract it again with `bicycle submit`; use one version of bicycle-runtime on both sides",
)
ENVIRONMENT_MISSING = BicycleError.row(
    "BIC-1640",
    "{folder} is no virtual environment that can be used: {reason}",
    cause="The folder that a plugin is said to be installed in is no environment that answers.",
    fix="make one with `python -m venv {folder}`, and install the plugin into it",
)
ENVIRONMENT_FILES_UNKNOWN = BicycleError.row(
    "BIC-1641",
    "the files of {library} cannot be sent to workers: its record names none",
    cause="The files of a distribution are not known, so it cannot be sent to workers.",
    fix="install it from a wheel: `pip install --force-reinstall --no-deps` of it",
)
ENVIRONMENT_CONFLICT = BicycleError.row(
    "BIC-1642",
    "plugin {plugin!r} cannot run with this runtime: {asker} requires {requirement}, "
    "there is {library} {found}",
    cause="A plugin and the runtime need different versions of a library that both use.",
    fix="use a release of the plugin, or of the runtime, for which both agree on {library}",
)
ENVIRONMENT_FOLDER_UNUSABLE = BicycleError.row(
    "BIC-1643",
    "{folder} cannot take the environments of plugins: {reason}",
    cause="The folder of a host for the environments of plugins cannot be used.",
    fix="remove it, or set TMPDIR for the workers to a folder that is theirs alone",
)
SCRIPT_UNUSABLE = BicycleError.row(
    "BIC-1618",
    "{file}: {problem}",
    cause="A job was given as a file, and it is not clear what to run.",
    fix="{hint}",
)
