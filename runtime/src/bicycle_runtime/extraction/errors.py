"""Errors of finding plugins and of extracting their graphs.

Most are raised in the child process, sent home as plain data and raised again by ``extract``, which
adds ``stderr_tail`` and ``stdout_tail`` (lists of lines). ``location`` is the user's ``file:line``
wherever it is known, else the entry point. This module does not import the child's machinery.
"""

from __future__ import annotations

from bicycle_sdk.errors import BicycleError

__all__ = [
    "BundleFormatError",
    "ChildStartError",
    "EntryPointError",
    "EnvironmentConflictError",
    "EnvironmentFilesError",
    "EnvironmentFolderError",
    "EnvironmentMissingError",
    "ExtractionError",
    "MissingDependencyError",
    "NoGraphError",
    "NotShippableError",
    "PluginExitedError",
    "PluginKilledError",
    "PluginMemoryError",
    "PluginNotFoundError",
    "PluginNotMarkedError",
    "PluginRaisedError",
    "PluginRefusedError",
    "PluginTimeoutError",
    "ResultFormatError",
    "ResultTooLargeError",
    "ScriptError",
    "SdkMismatchError",
]


class ExtractionError(BicycleError):
    """A plugin did not give a graph; the base of all errors that come out of a child process."""

    code = "BIC-1600"
    message = "plugin {plugin!r} of {dist} gave no graph"
    fix = "run `bicycle plugins check` to see the reason"


class PluginNotFoundError(BicycleError):
    """No installed plugin has this name. ``close_matches`` and ``known`` are lists of names."""

    code = "BIC-1601"
    message = "no plugin is called {name!r}{suggestion}; installed: {known_text}"
    fix = "install the wheel that brings it into this environment, or use one of the names above"


class PluginRefusedError(BicycleError):
    """The name is installed but cannot be used; ``sources`` lists the distributions."""

    code = "BIC-1602"
    message = "plugin {name!r} cannot be used: {reason}"
    fix = "correct or uninstall {source_text}"


class ChildStartError(ExtractionError):
    """The interpreter of the child process did not start, or lacks what the child needs."""

    code = "BIC-1603"
    message = "the process for plugin {plugin!r} of {dist} did not start with {python}: {detail}"
    fix = "check that this interpreter runs and has bicycle-runtime installed"


class PluginRaisedError(ExtractionError):
    """User code raised. ``traceback`` is a list of lines without frames of Bicycle."""

    code = "BIC-1604"
    message = (
        "{location}: {exception_type}: {exception_message}; "
        "raised {phase} plugin {plugin!r} of {dist}"
    )
    fix = "correct the line above; nothing was started"


class PluginExitedError(ExtractionError):
    """User code ended its process. ``how`` is ``"sys.exit"`` or ``"process end"``."""

    code = "BIC-1605"
    message = (
        "{location}: the process ended with exit code {exit_code} ({how}) "
        "{phase} plugin {plugin!r} of {dist}"
    )
    fix = "remove the exit: raise an exception to report a fault, return to be done"


class PluginKilledError(ExtractionError):
    """The child process was ended by a signal: a crash of native code, or somebody's kill."""

    code = "BIC-1606"
    message = (
        "{location}: the process was ended by {signal_name} {phase} plugin {plugin!r} of {dist}"
    )
    fix = "look for native code at the line above; SIGKILL may also be a machine without memory"


class PluginTimeoutError(ExtractionError):
    """The child did not answer in time. ``traceback`` tells where it was, newest call last."""

    code = "BIC-1607"
    message = (
        "{location}: not done after {limit_ms:duration} {phase} plugin {plugin!r} of {dist}; "
        "it was killed"
    )
    fix = "do slow work in open() of a function, not while building; or raise the time limit"


class PluginMemoryError(ExtractionError):
    """User code asked for more memory than the child process may have."""

    code = "BIC-1608"
    message = (
        "{location}: out of memory (limit {limit_bytes} bytes) {phase} plugin {plugin!r} of {dist}"
    )
    fix = (
        "load large data in open() of a function, not while the graph is built; or raise the limit"
    )


class ResultTooLargeError(ExtractionError):
    """Graph and functions together are larger than allowed; ``payload`` names the largest part."""

    code = "BIC-1609"
    message = (
        "plugin {plugin!r} of {dist} gave a result of {size_bytes} bytes, "
        "the limit is {limit_bytes}; the largest part is {payload!r}"
    )
    fix = "read the data with a source or in open() instead of capturing it, or raise the limit"


class ResultFormatError(ExtractionError):
    """What came through the result pipe is not one whole frame."""

    code = "BIC-1610"
    message = "the result of plugin {plugin!r} of {dist} is not readable: {detail}"
    fix = (
        "the plugin writes to file descriptors that are not its own; write to sys.stdout or a file"
    )


class EntryPointError(ExtractionError):
    """The entry point names a module or an attribute that does not exist."""

    code = "BIC-1611"
    message = "entry point {target!r} of plugin {plugin!r} of {dist} leads nowhere: {reason}"
    fix = 'correct [project.entry-points."bicycle.plugins"] and install the distribution again'


class PluginNotMarkedError(ExtractionError):
    """The entry point leads to an object without the mark of ``@bicycle_plugin``."""

    code = "BIC-1612"
    message = "{location}: {target!r} of {dist} is a {found} without the mark of a plugin"
    fix = "put @bicycle_plugin(name={plugin!r}, version=…) on it, or correct the entry point"


class MissingDependencyError(ExtractionError):
    """The plugin imports a module that is not installed."""

    code = "BIC-1613"
    message = (
        "{location}: plugin {plugin!r} of {dist} needs the module {module!r}, "
        "which is not installed"
    )
    fix = "install it here and add it to the dependencies of {dist}"


class SdkMismatchError(ExtractionError):
    """The plugin asks for another version of the SDK than the one installed."""

    code = "BIC-1614"
    message = (
        "plugin {plugin!r} of {dist} requires {requirement!r}, installed is bicycle-sdk {found}"
    )
    fix = "install a release of the plugin for bicycle-sdk {found}, or the SDK it asks for"


class NoGraphError(ExtractionError):
    """Building the plugin gave something that is not a job graph."""

    code = "BIC-1615"
    message = "{location}: plugin {plugin!r} of {dist} gave {found}, not a job graph"
    fix = (
        "describe the job on the environment that the builder gets: env.read_text(…).map(…).print()"
    )


class NotShippableError(ExtractionError):
    """A function holds something that cannot travel to workers.

    ``name`` is what is held, as written in the code; ``vertex`` and ``role`` say whose function it
    is.
    """

    code = "BIC-1616"
    message = (
        "{location}: {role} of operator {vertex!r} cannot be sent to workers: it holds {name!r} "
        "({held}): {reason}"
    )
    fix = "create it in open() of a function class, or inside the function, instead of capturing it"


class BundleFormatError(BicycleError):
    """The bytes of a job bundle are damaged or of another version."""

    code = "BIC-1617"
    message = "job bundle is not readable: {detail}"
    fix = "extract it again with `bicycle submit`; use one version of bicycle-runtime on both sides"


class EnvironmentMissingError(BicycleError):
    """The folder that a plugin is said to be installed in is no environment that answers."""

    code = "BIC-1640"
    message = "{folder} is no virtual environment that can be used: {reason}"
    fix = "make one with `python -m venv {folder}`, and install the plugin into it"


class EnvironmentFilesError(BicycleError):
    """What belongs to a distribution cannot be told, so it cannot be sent to workers."""

    code = "BIC-1641"
    message = "the files of {library} cannot be sent to workers: its record names none"
    fix = "install it from a wheel: `pip install --force-reinstall --no-deps` of it"


class EnvironmentConflictError(BicycleError):
    """A plugin and the runtime need different versions of a library that both use."""

    code = "BIC-1642"
    message = (
        "plugin {plugin!r} cannot run with this runtime: {asker} requires {requirement}, "
        "there is {library} {found}"
    )
    fix = "use a release of the plugin, or of the runtime, for which both agree on {library}"


class EnvironmentFolderError(BicycleError):
    """The folder of a host for the environments of plugins cannot be used."""

    code = "BIC-1643"
    message = "{folder} cannot take the environments of plugins: {reason}"
    fix = "remove it, or set TMPDIR for the workers to a folder that is theirs alone"


class ScriptError(BicycleError):
    """A job was given as a file, and it is not clear what to run."""

    code = "BIC-1618"
    message = "{file}: {problem}"
    fix = "{hint}"
