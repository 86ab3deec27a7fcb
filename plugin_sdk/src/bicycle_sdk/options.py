"""The declaration of an option: default, bounds, words and doc at its field.

The runtime's options are declared with it, and so are the options of a connector that has a builder
here: builder, connector, checks and docs then use one declaration. Reading and checking values is
the runtime's part.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

__all__ = ["Declaration", "declaration", "declared_options", "option"]

_METADATA = "bicycle_option"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """The declaration at a field, beside its type and its default.

    ``call`` is the method of a builder that sets the option, where there is one. ``aliases`` are
    earlier names of the option that are still accepted.
    """

    doc: str
    low: float | None = None
    high: float | None = None
    choices: tuple[Any, ...] = ()
    call: str = ""
    aliases: tuple[str, ...] = ()


def option(
    default: Any = dataclasses.MISSING,
    *,
    doc: str,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[Any, ...] = (),
    call: str = "",
    aliases: tuple[str, ...] = (),
) -> Any:
    """Declare a dataclass field as an option.

    Args:
        default: Absent for a required option. A mutable default is refused, as ``dataclasses``
            does.
        doc: One sentence for the docs and ``--help``.
        low: Least accepted number.
        high: Greatest accepted number.
        choices: The accepted values; by default the values of a ``Literal`` or ``Enum`` annotation.
        call: The method of a builder that sets it.
        aliases: Earlier names of the option that are still accepted.

    Example:
        >>> @dataclass(frozen=True, slots=True, kw_only=True)
        ... class Retention:
        ...     keep_ms: int = option(60_000, low=1_000, doc="How long finished epochs are kept.")
        >>> declaration(dataclasses.fields(Retention)[0]).low
        1000
    """
    declared = Declaration(doc=doc, low=low, high=high, choices=choices, call=call, aliases=aliases)
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata={_METADATA: declared})
    return dataclasses.field(default=default, metadata={_METADATA: declared})


def declaration(field: dataclasses.Field[Any]) -> Declaration | None:
    """Return the declaration of a field, or None if it is not an option."""
    found: Declaration | None = field.metadata.get(_METADATA)
    return found


def declared_options(cls: type[Any]) -> dict[str, Declaration]:
    """Return the declared options of a dataclass, by name."""
    found = {field.name: declaration(field) for field in dataclasses.fields(cls)}
    return {name: declared for name, declared in found.items() if declared is not None}
