"""Lists of records as bytes. The codec follows the declared type.

Undeclared records are carried as they are.

*typed*: MessagePack by msgspec with the declared type. *plain*: undeclared scalars, MessagePack
without a type. *pickle*: everything else, exact but slow. A blob names its codec, so a batch that
a typed codec would change somewhere (see ``exactness``) is sent as pickle instead. Keys of state
have a codec of their own (``AnyCodec``), in which equal values always have equal bytes.
"""

from __future__ import annotations

import contextlib
import copyreg
import io
import pickle
import types
import typing
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextvars import ContextVar
from operator import attrgetter, methodcaller
from typing import Any, Literal

import msgspec

from bicycle_runtime.base.thread_safe_types import prepare_type
from bicycle_runtime.records.by_value import pickle_by_value
from bicycle_runtime.records.errors import PICKLE_REFUSED, RECORD_UNENCODABLE, RecordDecodingError
from bicycle_runtime.records.exactness import PLAIN, fit_of, once_a_type
from bicycle_sdk.state.separation import separate

CodecName = Literal["typed", "plain", "pickle"]

_ENCODER = msgspec.msgpack.Encoder()
_PLAIN_DECODER = msgspec.msgpack.Decoder()
_RAW_LIST = msgspec.msgpack.Decoder(list[msgspec.Raw])
_EXT_PICKLE, _EXT_TUPLE = 1, 2
_PROTOCOL = 5
_REDUCE, _NAME_OF_CLASS = methodcaller("__reduce_ex__", _PROTOCOL), attrgetter("__qualname__")
_CLASSES: ContextVar[ClassNotes | None] = ContextVar("_CLASSES", default=None)


class _Refused:
    """The kinds of pickles that this process refuses; it runs one job at a time."""

    __slots__ = ("records", "state")

    def __init__(self) -> None:
        self.state = self.records = False


_refused = _Refused()


def refuse_pickles(*, state: bool, records: bool = False) -> None:
    """Set the kinds of pickles to refuse, since a pickle may run any code.

    Args:
        state: Refuse those of state, stored and to be stored.
        records: Refuse those of records, such as those of a loop that lie in a checkpoint.
    """
    _refused.state, _refused.records = state, records


def load_record_pickle(data: bytes | memoryview) -> Any:
    """Return unpickled records.

    Raises:
        PICKLE_REFUSED: that is not to be.
    """
    if _refused.records:
        raise PICKLE_REFUSED(what="records of a loop in a checkpoint")
    return pickle.loads(data)


def _load_state_pickle(data: memoryview) -> Any:
    if _refused.state:
        raise PICKLE_REFUSED(what="a key or a value of state is stored as a pickle")
    return pickle.loads(data)


class RecordCodec:
    """Encodes lists of records of one declared type (None: not declared).

    Args:
        declared: The record type, such as ``str``, ``tuple[str, int]`` or a dataclass; None when
            unknown.
        sender: Who gives the records, for errors.
        separates: Whether records may have parts in common; where they arrive they have none.
    """

    __slots__ = ("_decoder", "_fit", "_sender", "_separates", "declared")

    def __init__(
        self, declared: Any = None, *, sender: str = "a function", separates: bool = False
    ) -> None:
        self.declared = declared
        self._separates = separates
        self._sender = sender
        self._decoder = _typed_decoder(declared)
        self._fit = fit_of(declared) if self._decoder else None
        if self._fit is None:
            self._decoder = None

    @property
    def name(self) -> CodecName:
        """The codec that records of the declared type get."""
        return "pickle" if self._fit is None or self._fit.is_never else "typed"

    @property
    def identity(self) -> Hashable:
        """The identity of the encoding: equal for codecs that read each other's output."""
        return self._decoder, self._separates

    @property
    def is_typed(self) -> bool:
        """Return whether the declared type can be decoded; it may not keep each value."""
        return self._decoder is not None

    @property
    def is_partial(self) -> bool:
        """Return whether the type may keep more values than ``encode_typed`` encodes."""
        return self._fit is not None and self._fit.is_partial

    def encode(self, values: list[Any]) -> tuple[CodecName, bytes]:
        """Return the name of the codec that fits these values, and their bytes.

        Raises:
            RECORD_UNENCODABLE: a value cannot even be pickled.
        """
        data = self.encode_typed(values)
        if data is not None:
            return "typed", data
        if self._decoder is None and PLAIN.issuperset(map(type, values)):
            # An int beyond 64 bits, or text that is no UTF-8: pickle carries it exactly.
            with contextlib.suppress(OverflowError, ValueError):
                return "plain", _ENCODER.encode(values)
        # A pickle of all records keeps shared objects; other codecs do not.
        return "pickle", self._pickle(list(map(separate, values)) if self._separates else values)

    def encode_typed(self, values: list[Any]) -> bytes | None:
        """Return the values as the declared type has them; None when it would change one."""
        # hot path: 6 ns a record of a scalar type, 15 ns for each part of another.
        fit = self._fit
        if fit is None or fit.is_never or not fit.holds(values):
            return None
        try:
            return _ENCODER.encode(values)
        except (OverflowError, ValueError, RecursionError):
            return None  # An int beyond 64 bits, text that is no UTF-8, a list within itself.

    def decode(self, name: CodecName, data: bytes | memoryview) -> list[Any]:
        """Return the records.

        Raises:
            RecordDecodingError: the bytes do not have the declared type.
        """
        if name == "pickle":
            loaded: list[Any] = load_record_pickle(data)
            return loaded
        decoder = self._decoder if name == "typed" else _PLAIN_DECODER
        if decoder is None:
            raise RecordDecodingError(
                declared=type_name_of(self.declared), reason="the type is unknown here"
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
            raise RECORD_UNENCODABLE(
                type_name=type(culprit).__qualname__,
                declared=type_name_of(self.declared),
                reason=str(error),
                sender=self._sender,
            ) from error


def codec_name_of(declared: Any) -> CodecName:
    """Return the codec for records of a declared type; for ``bicycle plan``."""
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
        load: Reads what was pickled. The default runs whatever code the bytes name, unless
            ``refuse_pickles`` was called.
    """

    __slots__ = ("_decoder", "_load")

    def __init__(self, load: Callable[[memoryview], Any] = _load_state_pickle) -> None:
        self._load = load
        self._decoder = msgspec.msgpack.Decoder(ext_hook=self._load_extension)

    def encode_list(self, values: Sequence[Any]) -> bytes:
        """Return a MessagePack array of the values."""
        if set(map(type, values)) <= PLAIN:
            # An int beyond 64 bits or text that is no UTF-8 goes as an extension below.
            with contextlib.suppress(OverflowError, UnicodeEncodeError):
                return _ENCODER.encode(values)
        return _ENCODER.encode([_wrap(value) for value in values])

    def encode_items(self, values: Sequence[Any]) -> list[msgspec.Raw]:
        """Return the bytes of each value, as ``encode_list`` puts them in a row.

        Many values of one shape take less time here than in many lists.
        """
        with contextlib.suppress(OverflowError, UnicodeEncodeError):
            column = _wrap_column(values)
            if column is not None:
                return _RAW_LIST.decode(_ENCODER.encode(column))
        return _RAW_LIST.decode(self.encode_list(values))

    def encode_opaque(self, values: Sequence[Any]) -> bytes:
        """Return an array of the values in which each is an extension, scalars too.

        So nothing that knows a type takes one of them for a value of it.
        """
        return _ENCODER.encode(
            [msgspec.msgpack.Ext(_EXT_PICKLE, _canonical_pickle(value)) for value in values]
        )

    def decode_list(self, data: bytes | memoryview) -> list[Any]:
        """Return the values."""
        decoded: list[Any] = self._decoder.decode(data)
        return decoded

    def _load_extension(self, code: int, data: memoryview) -> Any:
        if code == _EXT_TUPLE:
            # hot path: 690 ns a tuple instead of 3,300 with a decoder of its own; they may nest.
            return tuple(self._decoder.decode(data))
        return self._load(data)


def _wrap_column(values: Sequence[Any]) -> Sequence[Any] | None:
    """Return encodable values if all are plain, or tuples of one shape, else None.

    Raises:
        OverflowError: an int is beyond 64 bits.
        UnicodeEncodeError: a text is no UTF-8.
    """
    # hot path: 450 ns a tuple of a text and a pair of ints, instead of 2,200 one by one.
    kinds = set(map(type, values))
    if kinds <= PLAIN:
        return values
    if kinds != {tuple} or len(set(map(len, values))) > 1 or not values[0]:
        return None
    columns = list(map(_wrap_column, zip(*values, strict=True)))
    if None in columns:
        return None
    encode, ext = _ENCODER.encode, msgspec.msgpack.Ext
    return [ext(_EXT_TUPLE, encode(row)) for row in zip(*columns, strict=True)]


def _wrap(value: Any) -> Any:
    kind = type(value)
    if kind is int and not -(1 << 63) <= value < 1 << 64:
        return msgspec.msgpack.Ext(_EXT_PICKLE, _canonical_pickle(value))
    if kind is str and not _is_utf8(value):
        return msgspec.msgpack.Ext(_EXT_PICKLE, _canonical_pickle(value))
    if kind in PLAIN:
        return value
    if kind is tuple:
        return msgspec.msgpack.Ext(_EXT_TUPLE, _encoded_parts(value))
    return msgspec.msgpack.Ext(_EXT_PICKLE, _canonical_pickle(value))


def _encoded_parts(parts: tuple[Any, ...]) -> bytes:
    is_plain = PLAIN.issuperset(map(type, parts))
    try:
        return _ENCODER.encode(parts if is_plain else [_wrap(part) for part in parts])
    except (OverflowError, UnicodeEncodeError):  # One of the parts goes as an extension.
        return _ENCODER.encode([_wrap(part) for part in parts])


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class ClassNotes(dict[type, Callable[[Any], Any]]):
    """The classes of objects that ``AnyCodec`` pickled, except for plain data.

    It is a dispatch table: pickle asks it how to reduce objects of a class, and gets what it would
    do by itself. So a class is noted once, and costs nothing from then on.
    """

    def __missing__(self, cls: type) -> Callable[[Any], Any]:
        by_itself = _NAME_OF_CLASS if issubclass(cls, type) else _REDUCE
        found = self[cls] = copyreg.dispatch_table.get(cls, by_itself)
        return found


@contextlib.contextmanager
def noting_classes(notes: ClassNotes) -> Iterator[None]:
    """Note the classes of objects that this thread pickles inside the block."""
    token = _CLASSES.set(notes)
    try:
        yield
    finally:
        _CLASSES.reset(token)


def same_bytes(value: Any) -> bytes:
    """Return bytes that are equal for values with equal parts of equal types.

    They hold in this process, and cannot be read. Two values may be the same and have others, as
    when a set is in another order.

    Raises:
        Exception: the value holds itself, or what cannot be pickled; or a class of the job raises.
    """
    buffer = io.BytesIO()
    pickler = _ComparingPickler(buffer, protocol=_PROTOCOL)
    pickler.fast = True
    pickler.dump(value)
    return buffer.getvalue()


class _ComparingPickler(pickle.Pickler):
    """A pickler that identifies classes by memory address, so that unnamed ones work."""

    def persistent_id(self, part: Any) -> int | None:  # pickle passes it by position
        return id(part) if isinstance(part, type) else None


def _canonical_pickle(value: Any) -> bytes:
    if _refused.state:
        what = (
            f"a key or a value of state of type {type(value).__qualname__} would be stored as a "
            "pickle"
        )
        raise PICKLE_REFUSED(what=what)
    buffer = io.BytesIO()
    pickler = _unremembering(buffer)
    notes = _CLASSES.get()
    if notes is not None:
        pickler.dispatch_table = notes
    try:
        pickler.dump(value)
    except Exception:  # noqa: BLE001  # recursive or local objects: exact, though not canonical
        return pickle_any(value)
    return buffer.getvalue()


def _unremembering(buffer: io.BytesIO) -> Any:
    """Return a pickler without the memo: bytes do not depend on shared objects."""
    pickler: Any = pickle.Pickler(buffer, protocol=_PROTOCOL)
    pickler.fast = True
    return pickler


@once_a_type(None)
def _typed_decoder(declared: Any) -> msgspec.msgpack.Decoder[list[Any]] | None:
    if declared is None or _is_open(declared):
        return None
    try:
        return msgspec.msgpack.Decoder(prepare_type(list[declared]))
    except (TypeError, RuntimeError):
        return None


def _is_open(declared: Any) -> bool:
    """Return whether a part of the type is open: Any, a bare container, a variable."""
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


def _can_pickle(value: Any) -> bool:
    try:
        pickle_any(value)
    except Exception:  # noqa: BLE001  # __reduce__ of user classes may raise anything
        return False
    return True
