"""Columns of keys: strings, 64-bit ints, or tuples of them.

They are Arrow's, which keeps strings one behind the other and looks them up without making objects.
A column of tuples is an array for each of their parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from bicycle_runtime.frames.arrays import NarrowInts, PackedInts, arrow, numpy, unpack
from bicycle_runtime.frames.vectors import ArrowVector, TupleVector, Vector
from bicycle_runtime.records.keys import encode_key, key_group

PackedValues = tuple[PackedInts, bytes | None]  # Ints; or lengths in bytes, and UTF-8.
PackedKeys = tuple[bool, list[PackedValues]]  # whether they are tuples, and each part of them
_CODE_BITS = 31


@dataclass(frozen=True, slots=True)
class Keys:
    """A column of keys.

    Shape: ``parts`` has one array, or one for each part where keys are tuples.
    """

    parts: tuple[Any, ...]
    is_tuple: bool = False

    def __len__(self) -> int:
        return len(self.parts[0])

    def is_like(self, other: Keys) -> bool:
        """Return whether the keys of another column have equal types."""
        return self.is_tuple == other.is_tuple and [part.type for part in self.parts] == [
            part.type for part in other.parts
        ]

    def take(self, indexes: Any) -> Keys:
        """Return the keys at some positions."""
        taken = arrow().array(indexes)
        return Keys(tuple(part.take(taken) for part in self.parts), self.is_tuple)

    def followed_by(self, others: Keys) -> Keys:
        """Return the keys of both."""
        pairs = zip(self.parts, others.parts, strict=True)
        return Keys(tuple(arrow().concat_arrays(pair) for pair in pairs), self.is_tuple)

    def to_list(self) -> list[Any]:
        """Return the keys as objects."""
        columns = [part.to_numpy(zero_copy_only=False).tolist() for part in self.parts]
        return list(zip(*columns, strict=True)) if self.is_tuple else columns[0]


def key_column(values: Vector) -> Keys | None:
    """Return values as keys; None when one of them cannot be in an array.

    These are keys that are neither int nor string, ints of more than 64 bits, and strings that are
    no Unicode text.
    """
    is_tuple = isinstance(values, TupleVector)
    vectors = values.parts if isinstance(values, TupleVector) else (values,)
    parts = [values_array(vector) for vector in vectors]
    if not parts or any(part is None for part in parts):
        return None
    return Keys(tuple(parts), is_tuple)


def values_array(vector: Vector) -> Any:
    """Return values as an Arrow array, or None unless all are ints or all strings."""
    pa = arrow()
    if vector.kinds == {int}:
        ints = vector.numbers
        return None if ints is None else pa.array(ints)
    if vector.kinds != {str}:
        return None
    if isinstance(vector, ArrowVector):
        return vector.column.cast(pa.large_string())
    try:
        return pa.array(vector.items, pa.large_string())
    except UnicodeEncodeError:
        return None


class _Codes:
    """A numbering of values: each new value gets the next small number."""

    def __init__(self) -> None:
        self.known: Any = None  # by number

    def of(self, parts: Sequence[Any]) -> Any:
        """Return the numbers of the values of several arrays, in order."""
        pa = arrow()
        values = pa.chunked_array(parts)
        if self.known is None:
            self.known = parts[0].slice(0, 0)
        # hot path: 50 to 80 ns a key, of 100,000; looking them up in a dict takes 230 to 450.
        found = pa.compute.index_in(values, value_set=self.known)
        if not found.null_count:
            return found.to_numpy()
        is_new, codes = found.is_null(), found.fill_null(0).to_numpy().copy()
        new = values.filter(is_new).combine_chunks().dictionary_encode()
        codes[is_new.to_numpy()] = new.indices.to_numpy() + len(self.known)
        self.known = pa.concat_arrays([self.known, new.dictionary])
        return codes


class KeyCodes:
    """A numbering of keys: each new key gets the next small number.

    Args:
        group_count: Key groups.
    """

    def __init__(self, group_count: int) -> None:
        self._group_count = group_count
        self._parts: list[_Codes] = []
        self._pairs: list[_Codes] = []  # of the parts up to one, and the next
        self.keys: Keys | None = None  # by number
        self.groups = numpy().empty(0, numpy().int64)  # by number

    def __len__(self) -> int:
        return len(self.groups)

    def of(self, several: Sequence[Keys]) -> Any:
        """Return the numbers of the keys of several columns, in order."""
        if self.keys is None or not self.keys.is_like(several[0]):
            self.__init__(self._group_count)  # type: ignore[misc]  # it begins again
            count = len(several[0].parts)
            self._parts = [_Codes() for _ in range(count)]
            self._pairs = [_Codes() for _ in range(count - 1)]
            self.keys = Keys(
                tuple(part.slice(0, 0) for part in several[0].parts), several[0].is_tuple
            )
        codes, *others = [
            one.of([keys.parts[index] for keys in several]) for index, one in enumerate(self._parts)
        ]
        pa, np = arrow(), numpy()
        for pairs, other in zip(self._pairs, others, strict=True):
            pair = (codes.astype(np.int64) << _CODE_BITS) | other
            codes = pairs.of([pa.array(pair)])
        self._know()
        return codes

    def _know(self) -> None:
        """Find out keys and key groups of the numbers that are new."""
        np = numpy()
        coder = self._pairs[-1] if self._pairs else self._parts[0]
        first, count = len(self), len(coder.known)
        if first == count:
            return
        codes = np.arange(first, count)
        indexes: list[Any] = []
        for pairs in reversed(self._pairs):
            pair = pairs.known.to_numpy()[codes]
            indexes.append(pair & ((1 << _CODE_BITS) - 1))
            codes = pair >> _CODE_BITS
        indexes.append(codes)
        taken = zip(self._parts, reversed(indexes), strict=True)
        assert self.keys is not None
        new = Keys(
            tuple(one.known.take(arrow().array(index)) for one, index in taken),
            self.keys.is_tuple,
        )
        listed, groups = new.to_list(), self._group_count
        found = [key_group(encode_key(key), group_count=groups) for key in listed]
        self.groups = np.concatenate((self.groups, np.array(found, np.int64)))
        self.keys = self.keys.followed_by(new)


def packed_keys(keys: Keys, bounds: Sequence[int]) -> list[PackedKeys]:
    """Return a column of keys as plain data, cut at ``bounds``, which begin with 0."""
    packers = [values_packer(part) for part in keys.parts]
    return [
        (keys.is_tuple, [packed(first, end) for packed in packers])
        for first, end in pairwise(bounds)
    ]


def values_packer(values: Any) -> Callable[[int, int], PackedValues]:
    """Return a function that returns ints or strings between positions as plain data.

    Args:
        values: An array of Arrow, of int64 or large_string, of at least one.
    """
    np = numpy()
    if arrow().types.is_integer(values.type):
        ints = NarrowInts(values.to_numpy())
        return lambda first, end: (ints.pack(first, end), None)
    _, offsets, text = values.buffers()
    ends = np.frombuffer(offsets, np.int64)[values.offset : values.offset + len(values) + 1]
    lengths = NarrowInts(np.diff(ends))
    utf8 = memoryview(text) if text is not None else b""
    return lambda first, end: (lengths.pack(first, end), bytes(utf8[ends[first] : ends[end]]))


def are_alike(several: Iterable[PackedKeys]) -> bool:
    """Return whether all are strings, all are ints, or all are equal kinds of tuples."""
    shapes = {(is_tuple, *(text is None for _, text in parts)) for is_tuple, parts in several}
    return len(shapes) == 1


def unpacked_keys(several: Sequence[PackedKeys]) -> Keys:
    """Return one column of the results of ``packed_keys``, all of one kind."""
    by_part = zip(*(parts for _, parts in several), strict=True)
    return Keys(tuple(map(unpacked_values, by_part)), several[0][0])


def unpacked_values(several: Sequence[PackedValues]) -> Any:
    """Return one array of the results of ``values_packer``, all of one kind."""
    pa, np = arrow(), numpy()
    ints = unpack(ints for ints, _ in several)
    texts = [text for _, text in several if text is not None]
    if not texts:
        return pa.array(ints)
    ends = np.concatenate(([0], ints.cumsum()))
    buffers = pa.py_buffer(ends), pa.py_buffer(b"".join(texts))
    return pa.LargeStringArray.from_buffers(len(ints), *buffers)


def ordered(keys: Keys, groups: Any) -> tuple[Keys, Any, Any]:
    """Return distinct keys, the group of each, and the index of each row's key.

    Keys are sorted by key group, and within a key group in the order in which windows fire.

    Args:
        keys: The key of each row.
        groups: The key group of each row.
    """
    np = numpy()
    (codes, _), *others = [ranks_of(part) for part in keys.parts]
    for more, different in others:
        _, codes = np.unique(codes * len(different) + more, return_inverse=True)
    found = int(codes.max()) + 1
    # In the order of the keys, which is that of their numbers.
    firsts, group_of = np.empty(found, np.int64), np.empty(found, np.int64)
    firsts[codes] = np.arange(len(codes))
    group_of[codes] = groups
    order = group_of.argsort(kind="stable")
    indexes = np.empty(found, np.int64)
    indexes[order] = np.arange(found)
    return keys.take(firsts[order]), group_of[order], indexes[codes]


def ranks_of(values: Any) -> tuple[Any, Any]:
    """Return the place of each value among the different ones in order, and these."""
    np = numpy()
    coded = values.dictionary_encode()
    order = arrow().compute.sort_indices(coded.dictionary)
    ranks = np.empty(len(order), np.int64)
    ranks[order.to_numpy()] = np.arange(len(order))
    return ranks[coded.indices.to_numpy()], coded.dictionary.take(order)
