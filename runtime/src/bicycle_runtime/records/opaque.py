"""Encoded values, as far as they can be read without running foreign code.

Loading a pickle may call anything, so none is loaded here: its instructions are looked at one by
one. What they build from plain data (and from dates, decimals and UUIDs) is built; where they name
any other class or function, the whole value stays ``Opaque`` and only tells what it is.
"""

from __future__ import annotations

import pickletools
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

from bicycle_runtime.records import by_value
from bicycle_runtime.records.codecs import AnyCodec

_BY_VALUE = "a class or function that was shipped by value"
_WRITERS_BY_VALUE = ("cloudpickle", by_value.__name__)
_CONTENT = {"EMPTY_LIST": "list", "EMPTY_DICT": "dict", "EMPTY_SET": "set"}
_PUSHES = frozenset(
    {
        "BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT",
        "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8",
        "SHORT_BINBYTES", "BINBYTES", "BINBYTES8",
    }
)  # fmt: skip
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_CONTAINERS: dict[str, Callable[[], Any]] = {
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_SET": set,
}
_TUPLE_SIZES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
# Calls that a pickle may contain: they only build a value from the arguments.
_MAKERS: dict[str, Callable[..., Any]] = {
    "datetime.date": date,
    "datetime.datetime": datetime,
    "datetime.time": time,
    "datetime.timedelta": timedelta,
    "datetime.timezone": timezone,
    "decimal.Decimal": Decimal,
}
_UUID = "uuid.UUID"
_FRAMING = frozenset({"PROTO", "FRAME", "STOP"})


@dataclass(frozen=True, slots=True)
class Opaque:
    """A pickled value that was not loaded: its type name and its bytes.

    Two of them are equal when their bytes are; equal values need not be.
    """

    type_name: str
    data: bytes


def decode_unloaded(data: bytes) -> list[Any]:
    """Return the values of a MessagePack array; pickled values are ``Opaque``.

    It reads what ``AnyCodec`` and ``ValueCodec`` write. Values of a declared type come back as the
    plain data that they were stored as: a dataclass as a dict.

    Example:
        >>> decode_unloaded(AnyCodec().encode_list(["ada", ("x", 1), {"a": [2]}]))
        ['ada', ('x', 1), {'a': [2]}]
    """
    return _CODEC.decode_list(data)


def is_pickled(data: bytes) -> bool:
    """Return whether some part of a MessagePack value is a pickle.

    Example:
        >>> [is_pickled(AnyCodec().encode_list([value])) for value in (1, (1, "a"), ({"a"},))]
        [False, False, True]
    """
    found: list[memoryview] = []
    AnyCodec(found.append).decode_list(data)
    return bool(found)


def _read(data: memoryview) -> Any:
    raw = bytes(data)
    try:
        return _Reading().result(raw)
    except Exception:  # noqa: BLE001  # Whatever is not plain data, cut or odd: it is shown by name.
        return Opaque(_type_name(raw), raw)


_CODEC = AnyCodec(_read)


class _NotPlainError(Exception):
    """The pickle names something that is not plain data."""


@dataclass(slots=True)
class _Named:
    """A class or function named by a pickle; ``is_made`` for an instance of it."""

    name: str
    is_made: bool = False


@dataclass(slots=True)
class _Reading:
    """The stack on which the instructions of one pickle build its value."""

    stack: list[Any] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)

    def result(self, data: bytes) -> Any:
        for opcode, argument, _ in pickletools.genops(data):
            name = opcode.name
            if name in _PUSHES:
                self.stack.append(argument)
            elif name in _CONSTANTS:
                self.stack.append(_CONSTANTS[name])
            elif name in _CONTAINERS:
                self.stack.append(_CONTAINERS[name]())
            elif name in _TUPLE_SIZES:
                self.stack.append(tuple(self._last(_TUPLE_SIZES[name])))
            elif name not in _FRAMING and not self._handle_memo(name, argument):
                self._combine(name)
        [value] = self.stack
        if isinstance(value, _Named):
            raise _NotPlainError(value.name)
        return value

    def _handle_memo(self, name: str, argument: Any) -> bool:
        match name:
            case "MARK":
                self.marks.append(len(self.stack))
            case "MEMOIZE":
                self.memo[len(self.memo)] = self.stack[-1]
            case "BINPUT" | "LONG_BINPUT":
                self.memo[argument] = self.stack[-1]
            case "BINGET" | "LONG_BINGET":
                self.stack.append(self.memo[argument])
            case _:
                return False
        return True

    def _combine(self, name: str) -> None:
        match name:
            case "APPEND" | "APPENDS":
                items = self._last(1) if name == "APPEND" else self._take_marked()
                self.stack[-1].extend(items)
            case "SETITEM" | "SETITEMS":
                items = self._last(2) if name == "SETITEM" else self._take_marked()
                self.stack[-1].update(zip(items[::2], items[1::2], strict=True))
            case "ADDITEMS":
                items = self._take_marked()
                self.stack[-1].update(items)
            case "FROZENSET":
                self.stack.append(frozenset(self._take_marked()))
            case "TUPLE":
                self.stack.append(tuple(self._take_marked()))
            case "STACK_GLOBAL":
                attribute, module = self.stack.pop(), self.stack.pop()
                self.stack.append(_Named(f"{module}.{attribute}"))
            case "REDUCE" | "NEWOBJ" | "BUILD":
                self._make(name, self.stack.pop(), self.stack.pop())
            case _:
                raise _NotPlainError(name)

    def _make(self, name: str, argument: Any, made: Any) -> None:
        """Make one of the values that are known to be plain."""
        if not isinstance(made, _Named):
            raise _NotPlainError(name)
        if name == "REDUCE" and made.name in _MAKERS:
            self.stack.append(_MAKERS[made.name](*argument))
        elif name == "NEWOBJ" and made.name == _UUID:
            self.stack.append(_Named(_UUID, is_made=True))
        elif name == "BUILD" and made.is_made:
            value = uuid.UUID(int=argument["int"])
            self.memo = {at: value if kept is made else kept for at, kept in self.memo.items()}
            self.stack.append(value)
        else:
            raise _NotPlainError(made.name)

    def _take_marked(self) -> list[Any]:
        """Take the items behind the last mark off the stack."""
        return self._last(len(self.stack) - self.marks.pop())

    def _last(self, count: int) -> list[Any]:
        items = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return items


def _type_name(data: bytes) -> str:
    """Return the type that a pickle describes: its first class and outer container."""
    texts: list[str] = []
    outer: str | None = None
    try:
        for opcode, argument, _ in pickletools.genops(data):
            if outer is None and opcode.name not in _FRAMING:
                outer = _CONTENT.get(opcode.name, "")
            if "UNICODE" in opcode.name:
                texts.append(str(argument))
            elif opcode.name == "STACK_GLOBAL":
                name = _class_name(*texts[-2:])
                return f"{outer} with {name}" if outer else name
    except Exception:  # noqa: BLE001  # A pickle that is cut or odd has no name.
        return "unknown"
    return outer or "unknown"


def _class_name(module: str, attribute: str) -> str:
    return _BY_VALUE if module.startswith(_WRITERS_BY_VALUE) else f"{module}.{attribute}"
