"""Earlier names of a field, under which its stored values are found again.

An alias belongs to the annotation of the field, of a record or of a rich function alike::

    @dataclass
    class Reading:
        celsius: Annotated[float, Aliases("temperature")]

In a dataclass ``field(metadata={"aliases": ["temperature"]})`` is equivalent.
"""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

from bicycle_sdk.errors import StateDefinitionError

__all__ = ["Aliases", "aliases_of"]


class Aliases:
    """The former names of a field, the latest first.

    Example:
        >>> Aliases("temperature", "temp").names
        ('temperature', 'temp')

    Raises:
        StateDefinitionError: there is no alias, or an alias is not a text.
    """

    __slots__ = ("names",)

    def __init__(self, *names: str) -> None:
        found: tuple[Any, ...] = names
        if not found or not all(isinstance(name, str) and name for name in found):
            raise StateDefinitionError(
                state="Aliases",
                problem=f"expected names, got {found!r}",
                hint="pass the former names of the field as texts",
            )
        self.names = names

    def __repr__(self) -> str:
        return f"Aliases({', '.join(map(repr, self.names))})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Aliases) and self.names == other.names

    def __hash__(self) -> int:
        return hash(self.names)


def aliases_of(cls: type) -> dict[str, tuple[str, ...]]:
    """Return the earlier names of a class's fields, for fields that have such names.

    Annotations that cannot be resolved here are ignored.
    """
    found: dict[str, tuple[str, ...]] = {}
    if dataclasses.is_dataclass(cls):
        for each in dataclasses.fields(cls):
            if "aliases" in each.metadata:
                found[each.name] = Aliases(*each.metadata["aliases"]).names
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except Exception:  # noqa: BLE001 - annotations are the user's code; unknown is fine.
        return found
    for name, hint in hints.items():
        for note in _notes(hint):
            if isinstance(note, Aliases):
                found[name] = (*found.get(name, ()), *note.names)
    return found


def _notes(hint: Any) -> tuple[Any, ...]:
    """Return the annotations of a type in ``Annotated``, also inside ``Required``."""
    while typing.get_origin(hint) in (typing.ClassVar, typing.Required, typing.NotRequired):
        (hint,) = typing.get_args(hint)
    notes: tuple[Any, ...] = getattr(hint, "__metadata__", ())
    return notes
