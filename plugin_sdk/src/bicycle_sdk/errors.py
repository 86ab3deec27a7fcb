"""The base of Bicycle errors: a stable code, a message template, a fix, and facts.

An error is data first: its facts are plain values, so it survives pickle (to and from a worker) and
JSON (to a REST response or a log line). Tests compare class, code and facts, never the rendered
sentence. An error that callers catch has a separate class; all others are an ``ErrorRow``, which
makes errors of a class by their code. This module holds no error of the runtime.
"""

from __future__ import annotations

import string
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Self, TypeVar

from bicycle_sdk.locations import calling_location
from bicycle_sdk.quantities import duration_text, moment_text

__all__ = [
    "BicycleError",
    "ConfigError",
    "DuplicateOptionError",
    "ErrorRow",
    "FunctionResultError",
    "GraphError",
    "GraphFormatError",
    "InvalidWindowError",
    "MergeMissingError",
    "MissingOptionError",
    "OptionError",
    "ParameterError",
    "PluginDefinitionError",
    "PreviewError",
    "SecretError",
    "SqlMissingError",
    "StateDefinitionError",
    "StateMergeError",
    "StreamDefinitionError",
    "UnknownOptionError",
    "printable",
]


def printable(text: str) -> str:
    """Return a text that can be written as UTF-8: lone surrogates are escaped.

    Example:
        >>> printable("ada" + chr(0xD800)) == "ada" + chr(92) + "ud800"
        True
    """
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


class BicycleError(Exception):
    """An error with a stable code, rendered from a template and keyword facts.

    Subclasses set ``code``, ``message`` and ``fix``; the two templates may name any fact in braces.
    A fact in ms is shown as people read it by ``{waited_ms:duration}`` and ``{reached_ms:moment}``,
    a number with its noun by ``{shard_count:count shard}``.

    Args:
        row: The row of this error; None: code and templates are attributes of the class.
        facts: Plain JSON values. Every name used by the templates must be given.
    """

    code: str = "BIC-0000"
    message: str = "{detail}"
    fix: str = "report this error with the log of the job"
    by_code: ClassVar[dict[str, type[BicycleError] | ErrorRow[BicycleError]]] = {}

    def __init_subclass__(cls) -> None:
        """Register the class under its code, which must be unique."""
        super().__init_subclass__()
        other = BicycleError.by_code.setdefault(cls.code, cls)
        if other is not cls and _full_name(other) != _full_name(cls):
            raise TypeError(f"{cls.__qualname__} reuses the code {cls.code} of {_full_name(other)}")

    def __init__(self, row: ErrorRow[BicycleError] | None = None, /, **facts: Any) -> None:
        super().__init__()
        missing = sorted((row or type(self)).fact_names() - facts.keys())
        if missing:
            raise TypeError(
                f"{row.code if row else type(self).__name__} needs {', '.join(missing)}"
            )
        self.facts: dict[str, Any] = {
            name: printable(fact) if isinstance(fact, str) else fact for name, fact in facts.items()
        }
        self._row = row
        if row is not None:
            self.code, self.message, self.fix = row.code, row.message, row.fix

    def __str__(self) -> str:
        location = self.facts.get("location") or self.facts.get("made")
        at = f"\n  at {location}" if location and str(location) not in self.summary else ""
        return f"{self.code} {self.summary}{at}\n  fix: {self.remedy}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self._row or type(self), self.facts)

    def with_facts(self, **facts: Any) -> BicycleError:
        """Return the same error with added or replaced facts."""
        return _rebuild(self._row or type(self), {**self.facts, **facts})

    @classmethod
    def row(cls, code: str, message: str, *, cause: str, fix: str) -> ErrorRow[Self]:
        """Register a row of the catalog: an error of this class with a separate code.

        Args:
            code: ``BIC-`` and four digits, used by no other class or row; TypeError otherwise.
            message: Template of the message: the problem, its location, found and expected.
            cause: The cause, in one sentence, for the reference.
            fix: Template of the fix.
        """
        row = ErrorRow(cls, code, message, cause, fix)
        other = BicycleError.by_code.setdefault(code, row)
        if other != row:
            raise TypeError(f"a row reuses the code {code} of {_full_name(other)}")
        return row

    @classmethod
    def fact_names(cls) -> set[str]:
        """Return the names of the facts which the two templates need."""
        return _fact_names(cls.message + cls.fix)

    @property
    def summary(self) -> str:
        """The sentence about the fault: the location, the found and the expected value."""
        return _TEXTS.format(self.message, **self.facts)

    @property
    def remedy(self) -> str:
        """The sentence about the fix."""
        return _TEXTS.format(self.fix, **self.facts)

    def to_json(self) -> dict[str, Any]:
        """Return the error as plain data; the runtime has the inverse ``error_from_json``."""
        return {"code": self.code, "message": self.summary, "fix": self.remedy, "facts": self.facts}


_Kind_co = TypeVar("_Kind_co", bound=BicycleError, covariant=True)


@dataclass(frozen=True)
class ErrorRow(Generic[_Kind_co]):
    """A row of the catalog of errors; a call with facts returns an error.

    Example:
        >>> FULL = BicycleError.row(
        ...     "DOC-0001", "basket {name!r} is full", cause="It has a bottom.", fix="empty it"
        ... )
        >>> print(FULL(name="front"))
        DOC-0001 basket 'front' is full
          fix: empty it
    """

    kind: type[_Kind_co]
    code: str
    message: str
    cause: str
    fix: str

    def __call__(self, **facts: Any) -> _Kind_co:
        """Return the error with these facts; TypeError when one of its texts is missing."""
        return self.kind(self, **facts)

    def fact_names(self) -> set[str]:
        """Return the names of the facts which the two templates need."""
        return _fact_names(self.message + self.fix)


def _fact_names(templates: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(templates) if name}


def _full_name(entry: type[BicycleError] | ErrorRow[BicycleError]) -> str:
    if isinstance(entry, ErrorRow):
        return f"the row {entry.message!r}"
    return f"{entry.__module__}.{entry.__qualname__}"


_COUNT = "count "


class _Texts(string.Formatter):
    """Fills templates of errors."""

    def format_field(self, value: Any, format_spec: str) -> str:
        """Return a fact as text, with readable durations, moments and counts."""
        texts = {"duration": duration_text, "moment": moment_text}
        if format_spec in texts:
            return texts[format_spec](value)
        if format_spec.startswith(_COUNT):
            noun = format_spec.removeprefix(_COUNT)
            return f"{value:,} {noun if value == 1 else noun + 's'}"
        return str(super().format_field(value, format_spec))


_TEXTS = _Texts()


def _rebuild(
    entry: type[BicycleError] | ErrorRow[BicycleError], facts: dict[str, Any]
) -> BicycleError:
    return entry(**facts)


class GraphError(BicycleError):
    """A job graph breaks the rules of graphs; the fact ``problems`` lists them."""

    code = "BIC-1001"
    message = "job graph {job!r} is invalid: {problem_text}"
    fix = "correct the named vertices in the plugin and submit again; nothing was started"


class GraphFormatError(BicycleError):
    """The JSON of a job graph cannot be read."""

    code = "BIC-1002"
    message = "job graph JSON is not readable: {detail}"
    fix = "write the JSON with JobGraph.to_json() of SDK version {sdk_version}"


class SecretError(BicycleError):
    """A referenced secret is missing. Errors never contain secrets."""

    code = "BIC-1009"
    message = "secret not found: {kind} {location!r} {problem}"
    fix = "set the variable, or make the file readable, on every host where the job runs"


class ParameterError(BicycleError):
    """A plugin parameter is unknown, missing or has the wrong type."""

    code = "BIC-1003"
    message = "parameter {name!r} of plugin {plugin!r}: {problem}"
    fix = "{hint}"


class PluginDefinitionError(BicycleError):
    """An object with the decorator of plugins cannot be a plugin."""

    code = "BIC-1004"
    message = "{target} cannot be a plugin: {problem}"
    fix = "{hint}"


class FunctionResultError(BicycleError):
    """A user function returned an object that is not an iterable of records."""

    code = "BIC-1005"
    message = "{function} returned {found}; expected a list or another iterable of records"
    fix = "return [] for no records, [value] for one record, [a, b] for several"


class StreamDefinitionError(BicycleError):
    """A call on a stream or an environment is invalid; the call raises this error.

    The fact ``location`` is ``file:line`` of the user's call.
    """

    code = "BIC-1006"
    message = "{call}: {problem}"
    fix = "{hint}"

    def __init__(self, **facts: Any) -> None:
        super().__init__(**{"location": calling_location(), **facts})


class PreviewError(BicycleError):
    """``stream.preview(n)`` was called in an environment without the runtime."""

    code = "BIC-1007"
    message = "preview of {vertex!r} needs the runtime, which is not installed"
    fix = "pip install bicycle-runtime"


class SqlMissingError(BicycleError):
    """``env.sql`` or ``env.table`` was called in an environment without the runtime."""

    code = "BIC-1011"
    message = "{call} needs the runtime with the extra sql, which is not installed"
    fix = "pip install 'bicycle-runtime[sql]'"


class StateMergeError(BicycleError):
    """States of several subtasks must be merged, and ``merge_state`` is missing."""

    code = "BIC-1008"
    message = "{function} has no merge_state(), so the states of its subtasks cannot be merged"
    fix = "define merge_state(states), put key_by before the function, or keep the parallelism"


class StateDefinitionError(BicycleError):
    """A state or a timer is declared or used incorrectly; the call raises this error."""

    code = "BIC-1010"
    message = "state {state!r}: {problem}"
    fix = "{hint}"


class InvalidWindowError(BicycleError):
    """A window has no length: its start is not before its end."""

    code = "BIC-1016"
    message = "window start must be before its end: [{start}, {end})"
    fix = "choose bounds in ms with start < end"


class MergeMissingError(BicycleError):
    """Partial windows must be merged, and their class has no method for it."""

    code = "BIC-1017"
    message = "{owner} has no {what}, so partial windows cannot be merged"
    fix = "define the method, or choose windows and settings that need no merging"


class ConfigError(BicycleError):
    """Settings contradict each other or are not supported."""

    code = "BIC-1100"
    message = "configuration rejected: {problem}"
    fix = "{hint}"


class OptionError(ConfigError):
    """The value of an option has the wrong type or is out of bounds."""

    code = "BIC-1101"
    message = "option {name!r} of {group} must be {expected}, got {found!r}"
    fix = "set {name} to {expected}"


class UnknownOptionError(ConfigError):
    """An option name is unknown. ``closest`` is the most similar name in ``known``, or None."""

    code = "BIC-1102"
    message = "{group} has no option {name!r}{suggestion}"
    fix = "use one of: {known_text}"


class DuplicateOptionError(ConfigError):
    """An option was set by two of its names."""

    code = "BIC-1104"
    message = "{group} has the option {name!r} twice: it is also set as {other!r}"
    fix = "remove {name!r}"


class MissingOptionError(ConfigError):
    """An option without a default was not set."""

    code = "BIC-1103"
    message = "{group} requires the option {name!r} ({doc})"
    fix = "set {name} to {expected}"
