"""Lists of records as bytes. The codec follows the declared type.

Undeclared records are carried as they are.

*typed*: MessagePack by msgspec with the declared type. *plain*: undeclared scalars, MessagePack
without a type. *pickle*: everything else, exact but slow. A blob names its codec, so a batch that
a typed codec would change (a subclass, a bool for an int) is sent as pickle instead. Keys of state
have a codec of their own (``AnyCodec``), in which equal values always have equal bytes.
"""

from __future__ import annotations

import contextlib
import copyreg
import io
import pickle
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from operator import attrgetter, methodcaller
from typing import Any, Literal

import msgspec

from bicycle_runtime.records.by_value import pickle_by_value
from bicycle_runtime.records.errors import RecordDecodingError, RecordEncodingError

__all__ = [
    "AnyCodec",
    "ClassNotes",
    "CodecName",
    "RecordCodec",
    "codec_name_of",
    "noting_classes",
    "pickle_any",
    "type_name_of",
]

CodecName = Literal["typed", "plain", "pickle"]

_PLAIN = frozenset({str, int, float, bool, bytes, type(None)})
_ENCODER = msgspec.msgpack.Encoder()
_PLAIN_DECODER = msgspec.msgpack.Decoder()
_EXT_PICKLE, _EXT_TUPLE = 1, 2
_PROTOCOL = 5
_REDUCE, _NAME_OF_CLASS = methodcaller("__reduce_ex__", _PROTOCOL), attrgetter("__qualname__")
_CLASSES: ContextVar[ClassNotes | None] = ContextVar("_CLASSES", default=None)


class RecordCodec:
    """Encodes lists of records of one declared type (None: not declared).

    Args:
        declared: The record type, such as ``str``, ``tuple[str, int]`` or a dataclass; None when
            unknown.
        sender: Who gives the records, for errors.
    """

    __slots__ = ("_decoder", "_exact", "_sender", "declared")

    def __init__(self, declared: Any = None, *, sender: str = "a function") -> None:
        self.declared = declared
        self._sender = sender
        self._decoder = _typed_decoder(declared)
        self._exact = _exact_types(declared) if self._decoder else None

    @property
    def name(self) -> CodecName:
        """The codec that records of the declared type get."""
        return "typed" if self._decoder else "pickle"

    def encode(self, values: list[Any]) -> tuple[CodecName, bytes]:
        """Return the name of the codec that fits these values, and their bytes.

        Raises:
            RecordEncodingError: a value can not even be pickled.
        """
        # hot path: set(map(type, …)) costs 12 ns a record and keeps subclasses and lambdas exact.
        found = set(map(type, values))
        # An int beyond 64 bits or a nested foreign object: pickle carries it exactly.
        with contextlib.suppress(OverflowError, TypeError, ValueError):
            if self._decoder is not None:
                if self._exact is None or found <= self._exact:
                    return "typed", _ENCODER.encode(values)
            elif found <= _PLAIN:
                return "plain", _ENCODER.encode(values)
        return "pickle", self._pickle(values)

    def decode(self, name: CodecName, data: bytes | memoryview) -> list[Any]:
        """Return the records.

        Raises:
            RecordDecodingError: the bytes do not have the declared type.
        """
        if name == "pickle":
            loaded: list[Any] = pickle.loads(data)
            return loaded
        decoder = self._decoder if name == "typed" else _PLAIN_DECODER
        if decoder is None:
            raise RecordDecodingError(
                declared=type_name_of(self.declared), reason="the type is not known here"
            )
        try:
            decoded: list[Any] = decoder.decode(data)
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            raise RecordDecodingError(
                declared=type_name_of(self.declared), reason=str(error)
            ) from error
        return decoded

    def _pickle(self, values: list[Any]) -> bytes:
        try:
            return pickle_any(values)
        except Exception as error:
            culprit = next((value for value in values if not _can_pickle(value)), values[0])
            raise RecordEncodingError(
                type_name=type(culprit).__qualname__,
                declared=type_name_of(self.declared),
                reason=str(error),
                sender=self._sender,
            ) from error


def codec_name_of(declared: Any) -> CodecName:
    """Return which codec records of this declared type get; for ``bicycle plan``."""
    return RecordCodec(declared).name


def type_name_of(declared: Any) -> str:
    """Return a type as a person would write it; ``unknown`` for None.

    Example:
        >>> type_name_of(tuple[str, int]), type_name_of(str), type_name_of(None)
        ('tuple[str, int]', 'str', 'unknown')
    """
    if declared is None:
        return "unknown"
    if isinstance(declared, types.GenericAlias):
        return repr(declared)
    return getattr(declared, "__qualname__", None) or repr(declared)


def pickle_any(value: Any) -> bytes:
    """Pickle a value; functions and local classes go by value (cloudpickle)."""
    try:
        return pickle.dumps(value, protocol=_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):
        return pickle_by_value(value)


class AnyCodec:
    """Values of any type, each by itself, where equal keys have equal bytes.

    State uses it for keys and values whose type is not declared. ``encode_list`` and
    ``decode_list`` are inverse.

    Args:
        load: Reads what was pickled. ``pickle.loads`` runs whatever code the bytes name.
    """

    __slots__ = ("_decoder", "_load")

    def __init__(self, load: Callable[[memoryview], Any] = pickle.loads) -> None:
        self._load = load
        self._decoder = msgspec.msgpack.Decoder(ext_hook=self._load_extension)

    def encode_list(self, values: Sequence[Any]) -> bytes:
        """Return a MessagePack array of the values."""
        if set(map(type, values)) <= _PLAIN:
            # An int beyond 64 bits or text that is no UTF-8 goes as an extension below.
            with contextlib.suppress(OverflowError, UnicodeEncodeError):
                return _ENCODER.encode(values)
        return _ENCODER.encode([_wrap(value) for value in values])

    def decode_list(self, data: bytes | memoryview) -> list[Any]:
        """Return the values."""
        decoded: list[Any] = self._decoder.decode(data)
        return decoded

    def _load_extension(self, code: int, data: memoryview) -> Any:
        if code == _EXT_TUPLE:
            # hot path: 690 ns a tuple instead of 3,300 with a decoder of its own; they may nest.
            return tuple(self._decoder.decode(data))
        return self._load(data)


def _wrap(value: Any) -> Any:
    kind = type(value)
    if kind is int and not -(1 << 63) <= value < 1 << 64:
        return msgspec.msgpack.Ext(_EXT_PICKLE, _canonical_pickle(value))
    if kind is str and not _is_utf8(value):
        return msgspec.msgpack.Ext(_EXT_PICKLE, _canonical_pickle(value))
    if kind in _PLAIN:
        return value
    if kind is tuple:
        return msgspec.msgpack.Ext(_EXT_TUPLE, _ENCODER.encode([_wrap(part) for part in value]))
    return msgspec.msgpack.Ext(_EXT_PICKLE, _canonical_pickle(value))


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class ClassNotes(dict[type, Callable[[Any], Any]]):
    """The classes of what ``AnyCodec`` has pickled, but for plain data.

    It is a dispatch table: pickle asks it how to reduce objects of a class, and gets what it would
    do by itself. So a class is noted once, and costs nothing from then on.
    """

    def __missing__(self, cls: type) -> Callable[[Any], Any]:
        by_itself = _NAME_OF_CLASS if issubclass(cls, type) else _REDUCE
        found = self[cls] = copyreg.dispatch_table.get(cls, by_itself)
        return found


@contextlib.contextmanager
def noting_classes(notes: ClassNotes) -> Iterator[None]:
    """Take note of the classes of what is pickled while inside, in this thread."""
    token = _CLASSES.set(notes)
    try:
        yield
    finally:
        _CLASSES.reset(token)


def _canonical_pickle(value: Any) -> bytes:
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, protocol=_PROTOCOL)
    notes = _CLASSES.get()
    if notes is not None:
        pickler.dispatch_table = notes
    pickler.fast = True  # without the memo, bytes do not depend on which parts are the same object
    try:
        pickler.dump(value)
    except Exception:  # noqa: BLE001  # recursive or local objects: exact, though not canonical
        return pickle_any(value)
    return buffer.getvalue()


def _typed_decoder(declared: Any) -> msgspec.msgpack.Decoder[list[Any]] | None:
    if declared is None or _is_open(declared):
        return None
    try:
        return msgspec.msgpack.Decoder(list[declared])
    except (TypeError, NameError, RuntimeError):
        return None


def _is_open(declared: Any) -> bool:
    """Tell whether some part of the type says nothing: Any, a bare container, a variable."""
    if declared in (Any, object, list, dict, tuple, set, frozenset) or isinstance(
        declared, typing.TypeVar
    ):
        return True
    if isinstance(declared, str):
        return True
    arguments = typing.get_args(declared)
    if typing.get_origin(declared) is typing.Literal:
        return False
    return any(_is_open(argument) for argument in arguments if argument is not Ellipsis)


def _exact_types(declared: Any) -> frozenset[type] | None:
    """Return the classes that the typed codec keeps exactly; None when they can not be listed."""
    origin = typing.get_origin(declared)
    if origin in (typing.Union, types.UnionType):
        members = [_exact_types(argument) for argument in typing.get_args(declared)]
        return None if None in members else frozenset().union(*filter(None, members))
    if origin is typing.Literal:
        return frozenset(map(type, typing.get_args(declared)))
    if declared is None or declared is type(None):
        return frozenset({type(None)})
    concrete = origin or declared
    if typing.is_typeddict(concrete):
        return frozenset({dict})
    return frozenset({concrete}) if isinstance(concrete, type) else None


def _can_pickle(value: Any) -> bool:
    try:
        pickle_any(value)
    except Exception:  # noqa: BLE001  # __reduce__ of user classes may raise anything
        return False
    return True
