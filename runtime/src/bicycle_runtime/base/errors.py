"""The runtime's own error base, and the way back from an error's JSON form to the error.

Each room has an ``errors.py`` with its own codes; here stand the errors of configuration
(BIC-11xx), since every room has options. This module does not decide how an error is shown: the
doors do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bicycle_sdk.errors import BicycleError

__all__ = [
    "ConfigError",
    "MissingOptionError",
    "OptionError",
    "UnknownError",
    "UnknownOptionError",
    "error_from_json",
]


class ConfigError(BicycleError):
    """Settings that can not be used together, or not here."""

    code = "BIC-1100"
    message = "configuration refused: {problem}"
    fix = "{hint}"


class OptionError(ConfigError):
    """A value has the wrong type or lies out of bounds."""

    code = "BIC-1101"
    message = "option {name!r} of {group} is {found!r}; expected {expected}"
    fix = "set {name} to {expected}"


class UnknownOptionError(ConfigError):
    """A name that is no option. ``known`` lists all names, ``closest`` is the likeliest or None."""

    code = "BIC-1102"
    message = "{group} has no option {name!r}{suggestion}"
    fix = "use one of: {known_text}"


class MissingOptionError(ConfigError):
    """An option without a default was not given."""

    code = "BIC-1103"
    message = "{group} needs the option {name!r} ({doc})"
    fix = "set {name} to {expected}"


class UnknownError(BicycleError):
    """An error of another version or of an absent extension; its words are kept."""

    code = "BIC-1110"
    message = "{original_code} {original_message}"
    fix = "{original_fix}"


def error_from_json(data: Mapping[str, Any]) -> BicycleError:
    """Return the error that ``BicycleError.to_json`` wrote.

    Args:
        data: The keys ``code``, ``message``, ``fix`` and ``facts``.

    Returns:
        An error of the class with this code; an ``UnknownError`` that keeps the words when the code
        is foreign or the class asks for other facts than were written.

    Example:
        >>> error = ConfigError(problem="two masters are given", hint="give one")
        >>> error_from_json(error.to_json()).facts
        {'problem': 'two masters are given', 'hint': 'give one'}
    """
    facts = dict(data.get("facts") or {})
    cls = BicycleError.by_code.get(str(data.get("code")))
    if cls is not None and cls.fact_names() <= facts.keys():
        return cls(**facts)
    return UnknownError(
        original_code=data.get("code", "BIC-0000"),
        original_message=data.get("message", ""),
        original_fix=data.get("fix", ""),
        original_facts=facts,
    )
