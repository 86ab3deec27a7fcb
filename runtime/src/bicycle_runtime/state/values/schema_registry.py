"""Stored names and codecs of an operator's states, from the manifest and the code.

The driver compares before a job starts; here a worker does for states that functions request while
they run, and values of earlier schema versions are read: as they are, taken apart, or by a hook of
the job.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import traceback
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec

import bicycle_runtime
from bicycle_runtime.base.code_paths import show_paths
from bicycle_runtime.base.user_code import error_text, users_error
from bicycle_runtime.layouts.state import (
    PICKLED,
    UNTYPED,
    OperatorStateMetadata,
    SchemaVersion,
    StateMetadata,
)
from bicycle_runtime.records.codecs import AnyCodec, ClassNotes, RecordCodec, noting_classes
from bicycle_runtime.state.errors import SCHEMA_REFUSED, STORED_VALUE_UNFIT, MigrationError
from bicycle_runtime.state.values.codecs import Evolution, ValueCodec
from bicycle_runtime.state.values.pickled import noted_class
from bicycle_runtime.state.values.schema_changes import Rewrite, could_be
from bicycle_runtime.state.values.schemas import Schema
from bicycle_runtime.state.values.state_metadata import (
    DeclaredState,
    StateChange,
    describe_version,
    evolve_state,
    find,
    fit_of,
    taken_names,
)
from bicycle_sdk.errors import BicycleError

Hook = Callable[[int, Any], Any]

_ANY = AnyCodec()
_ENCODER = msgspec.msgpack.Encoder()
_RAW = msgspec.msgpack.Decoder()
_ARRAY_OF_ONE = b"\x91"
_OURS = str(Path(bicycle_runtime.__file__).parent)
# The position of the type in the bytes of an extension, by its first byte.
_EXTENSIONS = {**dict.fromkeys(range(0xD4, 0xD9), 1), 0xC7: 2, 0xC8: 3, 0xC9: 5}
_PICKLED = (1, 2)


@dataclass(frozen=True, slots=True)
class OpenedState:
    """The stored name of a state, and the codec of its values."""

    stored_name: str
    codec: ValueCodec


class SchemaRegistry:
    """Knows the states of one operator in one subtask.

    Args:
        operator: Its uid, for errors.
        known: The schemas of the manifest and of the code's declarations.

    ``texts`` are the texts in the code of the function, such as names of states.
    """

    def __init__(self, operator: str = "", known: OperatorStateMetadata | None = None) -> None:
        self._operator = operator
        self._known = known or OperatorStateMetadata()
        self._asked: dict[str, StateMetadata] = {}
        self._notes = ClassNotes()
        self._classes = {state.name for state in self._known.states if state.kind == PICKLED}
        self.texts: frozenset[str] = frozenset()

    @contextlib.contextmanager
    def noting_classes(self) -> Iterator[None]:
        """Note the classes of values that are pickled inside; ``asked`` gets new ones."""
        known_count = len(self._notes)
        with noting_classes(self._notes):
            yield
        for cls in islice(self._notes, known_count, None):
            noted = noted_class(cls)
            if noted is not None and noted.name not in self._classes:
                self._asked[noted.name] = noted

    def asked(self) -> list[StateMetadata]:
        """Return the states that functions requested here without a declaration, by name."""
        return [state for _, state in sorted(self._asked.items())]

    def open(self, declared: DeclaredState, value_type: Any, hook: Hook | None) -> OpenedState:
        """Return place and codec of a state.

        Args:
            declared: The state.
            value_type: The declared type of its values.
            hook: Migrates values of earlier versions.

        Raises:
            SCHEMA_REFUSED: sealed values cannot be read so.
        """
        stored = self._asked.get(declared.name) or find(self._known, declared)
        is_asked = stored is None or stored.is_asked
        state, change = evolve_state(
            self._operator, stored, declared, taken=taken_names(self._known),
            is_asked=is_asked, is_told=is_asked and declared.name in self.texts,
        )  # fmt: skip
        if change.verdict == "refused":
            raise refusal_of([change])
        if is_asked:
            self._asked[declared.name] = state
        if len(state.schema_versions) == 1:
            return OpenedState(state.stored_name, ValueCodec(value_type))
        readers = {
            index: _FormerReader(
                self._operator, declared, schema_version, value_type=value_type, hook=hook
            )
            for index, schema_version in enumerate(state.schema_versions)
            if index != state.current
        }
        evolution = Evolution(
            state.current,
            readers,
            is_first_direct=state.current != 0 and readers[0].is_direct,
        )
        return OpenedState(state.stored_name, ValueCodec(value_type, evolution))


def require_alike(operator: str, one: StateMetadata, other: StateMetadata) -> None:
    """Refuse a state that two subtasks request with different types.

    Raises:
        SCHEMA_REFUSED: they differ.
    """
    if one.kind == other.kind and (one.schema_versions, one.current) == (
        other.schema_versions,
        other.current,
    ):
        return
    if (
        one.kind == other.kind
        and one.schema_versions == other.schema_versions[: len(one.schema_versions)]
    ):
        return  # The other is its form in this run.
    change = StateChange(
        operator=operator,
        state=one.name,
        verdict="refused",
        details=("functions of one operator use it with different types",),
        stored=describe_version(one.schema_version),
        declared=describe_version(other.schema_version),
    )
    raise refusal_of([change])


def refusal_of(changes: list[StateChange]) -> BicycleError:
    """Return the error for states that are refused, with both schemas side by side."""
    lines: list[str] = []
    for change in changes:
        lines += [
            f"  operator {change.operator!r}, state {change.state!r}: {'; '.join(change.details)}",
            f"    stored    {change.stored}",
            f"    declared  {change.declared}",
        ]
    refused = [
        {
            "operator": change.operator,
            "state": change.state,
            "problems": list(change.details),
            "stored": change.stored,
            "declared": change.declared,
        }
        for change in changes
    ]
    return SCHEMA_REFUSED(refused=refused, table="\n".join(lines))


class _FormerReader:
    """Reads values of one earlier form of a state.

    Args:
        operator: Uid of the operator.
        declared: The state as it is now.
        schema_version: The schema version.
        value_type: The declared type of values.
        hook: Migrates values of earlier versions.
    """

    def __init__(
        self,
        operator: str,
        declared: DeclaredState,
        schema_version: SchemaVersion,
        *,
        value_type: Any,
        hook: Hook | None,
    ) -> None:
        self._operator = operator
        self._declared = declared
        self._schema_version = schema_version
        self._typed = RecordCodec(None if declared.schema == UNTYPED else value_type)
        self._hook = (
            hook if declared.migrates and schema_version.version < declared.version else None
        )
        self._rewrite: Rewrite | None = fit_of(schema_version, declared).rewrite

    @property
    def is_direct(self) -> bool:
        """Return whether the declared type reads values of the schema version directly."""
        is_typed = UNTYPED not in (self._schema_version.schema, self._declared.schema)
        return is_typed and self._hook is None and self._rewrite is None

    def __call__(self, item: bytes, key: Any) -> Any:
        """Return a value; ``key`` is its key, encoded or not, for errors."""
        schema = self._schema_version.schema
        try:
            if schema == UNTYPED or _is_pickled(item):
                [value] = _ANY.decode_list(_ARRAY_OF_ONE + item)
                return value if self._hook is None else self._migrate(value, key)
            if self._hook is not None:
                return self._migrate(plain_value(schema, _RAW.decode(item)), key)
            if self._declared.schema == UNTYPED:
                return plain_value(schema, _RAW.decode(item))
            if self._rewrite is not None:
                item = _ENCODER.encode(self._rewrite(_RAW.decode(item)))
            return self._typed.decode("typed", _ARRAY_OF_ONE + item)[0]
        except BicycleError as error:
            if isinstance(error, MigrationError):
                raise
            return self._odd(item, key, error)
        except Exception as error:  # noqa: BLE001  # a value that does not fit its schema may fail anywhere
            return self._odd(item, key, error)

    def _migrate(self, value: Any, key: Any) -> Any:
        assert self._hook is not None
        try:
            result = self._hook(self._schema_version.version, value)
        except BaseException as error:
            users_error(error)
            raise self._failure(error, key, _location_of(error)) from error
        if self._declared.schema == UNTYPED:
            return result
        try:
            # The hook may return plain data, such as a dict for a record: the type converts it like
            # stored values.
            return self._typed.decode("typed", _ENCODER.encode([result]))[0]
        except Exception as error:
            raise self._failure(error, key, "") from error

    def _failure(self, error: BaseException, key: Any, location: str) -> MigrationError:
        return MigrationError(
            operator=self._operator,
            state=self._declared.name,
            version=self._schema_version.version,
            declared_version=self._declared.version,
            key=_redact(key),
            location=location,
            exception=type(error).__qualname__,
            exception_message=error_text(error),
        )

    def _odd(self, item: bytes, key: Any, error: Exception) -> Any:
        """Return a scalar that was never of its type, as it is; anything else is an error."""
        [value] = _ANY.decode_list(_ARRAY_OF_ONE + item)
        if not isinstance(value, list | dict):
            return value
        raise STORED_VALUE_UNFIT(
            operator=self._operator, state=self._declared.name, key=_redact(key),
            version=self._schema_version.version, reason=str(error),
        ) from error  # fmt: skip


def _is_pickled(item: bytes) -> bool:
    """Return whether an encoded value was pickled because its type could not hold it."""
    stored_name = _EXTENSIONS.get(item[0])
    return stored_name is not None and item[stored_name] in _PICKLED


def _redact(key: Any) -> str:
    """Return a description of a key that does not reveal it."""
    if key is None:
        return "a value without a separate key"
    data = bytes(key) if isinstance(key, msgspec.Raw) else _ANY.encode_list([key])[1:]
    [found] = _ANY.decode_list(_ARRAY_OF_ONE + data)
    return f"a key of type {type(found).__qualname__} (crc32 {crc32(data):08x})"


def _location_of(error: BaseException) -> str:
    """Return where the code of the job raised, as ``" at file:line"``."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_OURS)
    ]
    return show_paths(f" at {frames[-1].filename}:{frames[-1].lineno}") if frames else ""


# Stored values as plain data, by their schema: for hooks that migrate values of former classes.
# Records become dicts by field names, enums their values; tuples, sets, dates, decimals and the
# like are unchanged.

_CONVERTED: dict[str, Any] = {
    "float": float,
    "bytearray": bytearray,
    "datetime": dt.datetime,
    "time": dt.time,
    "date": dt.date,
    "timedelta": dt.timedelta,
    "uuid": uuid.UUID,
    "decimal": Decimal,
}
_MAKERS: dict[str, Callable[[Any], Any]] = {
    "list": list,
    "tuple_of": tuple,
    "set": set,
    "frozenset": frozenset,
}


def plain_value(  # noqa: PLR0911  # one return for each kind of schema
    schema: Schema, raw: Any, within: tuple[Schema, ...] = ()
) -> Any:
    """Return a value as plain data.

    Args:
        schema: How it was stored.
        raw: The MessagePack value.
        within: The enclosing records of the schema, the innermost last.

    Example:
        >>> point = {"type": "record", "name": "P", "form": "array", "fields": [
        ...     {"name": "x", "type": "int"},
        ...     {"name": "y", "type": {"type": "set", "items": "int"}}]}
        >>> plain_value(point, [1, [2]])
        {'x': 1, 'y': {2}}
    """
    if isinstance(schema, str):
        return msgspec.convert(raw, _CONVERTED[schema]) if schema in _CONVERTED else raw
    match schema["type"]:
        case "record":
            return _record(schema, raw, (*within, schema))
        case "again":
            up = len(within) - schema["up"]
            return plain_value(within[up - 1], raw, within[: up - 1])
        case "union":
            members = [each for each in schema["of"] if could_be(raw, each)]
            return plain_value(members[0], raw, within) if members else raw
        case "tuple":
            pairs = zip(schema["items"], raw, strict=True)
            return tuple(plain_value(each, part, within) for each, part in pairs)
        case "dict":
            keys, values = schema["keys"], schema["values"]
            return {
                _hashable(plain_value(keys, key, within)): plain_value(values, value, within)
                for key, value in raw.items()
            }
        case "enum" | "literal":
            return raw
        case kind:
            items = [plain_value(schema["items"], part, within) for part in raw]
            return _MAKERS[kind](items)


def _record(schema: Schema, raw: Any, within: tuple[Schema, ...]) -> dict[str, Any]:
    fields = schema["fields"]
    if schema["form"] == "array":
        first = int(schema.get("tag") is not None)
        raw = dict(zip((each["name"] for each in fields), raw[first:], strict=False))
    return {
        each["name"]: plain_value(each["type"], raw[each["name"]], within)
        if each["name"] in raw
        else each.get("default")
        for each in fields
        if each["name"] in raw or "default" in each
    }


def _hashable(key: Any) -> Any:
    return tuple(key) if isinstance(key, list) else key
