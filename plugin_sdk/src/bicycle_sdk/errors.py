"""The base of every Bicycle error: a stable code, a message template, a fix, and plain facts.

An error is data first: its facts are plain values, so it survives pickle (to and from a worker) and
JSON (to a REST answer or a log line). Tests compare class, code and facts, never the rendered
sentence. This module holds no error of the runtime; those derive from ``BicycleError`` where they
are raised.
"""

from __future__ import annotations

import string
from typing import Any, ClassVar

from bicycle_sdk.places import calling_place
from bicycle_sdk.quantities import duration_text, moment_text

__all__ = [
    "BicycleError",
    "FunctionResultError",
    "GraphError",
    "GraphFormatError",
    "InvalidWindowError",
    "MergeMissingError",
    "ParameterError",
    "PluginDefinitionError",
    "PreviewError",
    "SecretError",
    "StateDefinitionError",
    "StateMergeError",
    "StreamDefinitionError",
]


class BicycleError(Exception):
    """An error with a stable code, rendered from a template and keyword facts.

    Subclasses set ``code``, ``message`` and ``fix``; the two templates may name any fact in braces.
    A fact in ms is shown as people read it by ``{waited_ms:duration}`` and ``{reached_ms:moment}``.

    Args:
        facts: Plain JSON values. Every name used by the templates must be given.
    """

    code: ClassVar[str] = "BIC-0000"
    message: ClassVar[str] = "{detail}"
    fix: ClassVar[str] = "report this with the log of the job"
    by_code: ClassVar[dict[str, type[BicycleError]]] = {}

    def __init_subclass__(cls) -> None:
        """Register the class under its code, which must be unique."""
        super().__init_subclass__()
        other = BicycleError.by_code.setdefault(cls.code, cls)
        if other is not cls and (other.__module__, other.__qualname__) != (
            cls.__module__,
            cls.__qualname__,
        ):
            raise TypeError(
                f"{cls.__qualname__} reuses the code {cls.code} of {other.__qualname__}"
            )

    def __init__(self, **facts: Any) -> None:
        super().__init__()
        missing = sorted(self.fact_names() - facts.keys())
        if missing:
            raise TypeError(f"{type(self).__name__} needs the facts {', '.join(missing)}")
        self.facts: dict[str, Any] = facts

    def __str__(self) -> str:
        place = self.facts.get("location") or self.facts.get("made")
        at = f"\n  at {place}" if place and str(place) not in self.summary else ""
        return f"{self.code} {self.summary}{at}\n  fix: {self.remedy}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.facts)

    @classmethod
    def fact_names(cls) -> set[str]:
        """Return the names of the facts which the two templates need."""
        fields = string.Formatter().parse(cls.message + cls.fix)
        return {name for _, name, _, _ in fields if name}

    @property
    def summary(self) -> str:
        """What happened, where, found and expected: one sentence."""
        return _TEXTS.format(self.message, **self.facts)

    @property
    def remedy(self) -> str:
        """What to do about it: one sentence."""
        return _TEXTS.format(self.fix, **self.facts)

    def to_json(self) -> dict[str, Any]:
        """Return the error as plain data; ``error_from_json`` of the runtime is its inverse."""
        return {"code": self.code, "message": self.summary, "fix": self.remedy, "facts": self.facts}


class _Texts(string.Formatter):
    """Fills templates of errors."""

    def format_field(self, value: Any, format_spec: str) -> str:
        """Return a fact as text: durations and moments as people read them."""
        texts = {"duration": duration_text, "moment": moment_text}
        if format_spec in texts:
            return texts[format_spec](value)
        return str(super().format_field(value, format_spec))


_TEXTS = _Texts()


def _rebuild(cls: type[BicycleError], facts: dict[str, Any]) -> BicycleError:
    return cls(**facts)


class GraphError(BicycleError):
    """A job graph breaks rules; the fact ``problems`` lists sentences that name the vertices."""

    code = "BIC-1001"
    message = "job graph {job!r} is not valid: {problem_text}"
    fix = "correct the named vertices in the plugin and submit again; nothing was started"


class GraphFormatError(BicycleError):
    """The JSON of a job graph cannot be read."""

    code = "BIC-1002"
    message = "job graph JSON is not readable: {detail}"
    fix = "write it with JobGraph.to_json() of the SDK version {sdk_version}"


class SecretError(BicycleError):
    """A secret is not where its reference says. The secret itself stands in no error."""

    code = "BIC-1009"
    message = "a secret is not there: {kind} {place!r} {problem}"
    fix = "set the variable, or make the file readable, on every host where the job runs"


class ParameterError(BicycleError):
    """A plugin parameter is unknown, missing or has the wrong type."""

    code = "BIC-1003"
    message = "parameter {name!r} of plugin {plugin!r}: {problem}"
    fix = "{hint}"


class PluginDefinitionError(BicycleError):
    """An object is marked as a plugin but cannot be one."""

    code = "BIC-1004"
    message = "{target} cannot be a plugin: {problem}"
    fix = "{hint}"


class FunctionResultError(BicycleError):
    """A user function returned something that is not an iterable of records."""

    code = "BIC-1005"
    message = "{function} returned {found}; a list (or another iterable) of records is expected"
    fix = "return [] for nothing, [value] for one record, [a, b] for several"


class StreamDefinitionError(BicycleError):
    """A call on a stream or an environment cannot be carried out; the call itself raises it.

    The fact ``location`` is ``file:line`` of the user's call.
    """

    code = "BIC-1006"
    message = "{call}: {problem}"
    fix = "{hint}"

    def __init__(self, **facts: Any) -> None:
        super().__init__(**{"location": calling_place(), **facts})


class PreviewError(BicycleError):
    """``stream.preview(n)`` was called where no runtime is installed that runs previews."""

    code = "BIC-1007"
    message = "preview of {vertex!r} needs the runtime, which is not installed here"
    fix = "pip install bicycle-runtime"


class StateMergeError(BicycleError):
    """A function without ``merge_state`` was asked to join the states of several subtasks."""

    code = "BIC-1008"
    message = "{function} does not say how the states of several subtasks become one"
    fix = "define merge_state(states), put key_by before the function, or keep the parallelism"


class StateDefinitionError(BicycleError):
    """A state or a timer cannot be as the function asks for it; the call itself raises it."""

    code = "BIC-1010"
    message = "state {state!r}: {problem}"
    fix = "{hint}"


class InvalidWindowError(BicycleError):
    """A window would hold no time at all."""

    code = "BIC-1016"
    message = "window start must be before its end: [{start}, {end})"
    fix = "give bounds in ms with start < end"


class MergeMissingError(BicycleError):
    """Parts of a window were to be joined by a class that does not say how."""

    code = "BIC-1017"
    message = "{owner} has no {what}, so parts of a window cannot be joined"
    fix = "define the method, or choose windows and settings that do not need it"
