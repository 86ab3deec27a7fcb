"""Functions and values as bytes for workers: canonical, by reference if possible.

cloudpickle decides what goes by value. What its bytes depend on beside the object is taken out
here:

* the order of a set is made canonical (the hash of ``None`` or of a class is an address);
* equal strings share one memo entry (which ones are one object depends on the ``.pyc`` cache);
* file names in code are relative to the import path, and ``__file__`` is not copied into functions;
* a class that goes by value gets an id made of the content of the job instead of a random one.

Values of more than ``CANONICAL_OBJECT_COUNT_MAX`` objects go through the C pickler, which is twenty
times as fast and skips the first two. This module does not explain refusals; ``culprits`` does.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import os
import pickle
import sys
import types
import typing
from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from cloudpickle import cloudpickle

from bicycle_runtime.extraction.imports import ImportSearch
from bicycle_runtime.records.by_value import forget_decoding, name_class, reduce_by_value

CANONICAL_OBJECT_COUNT_MAX = 200_000
_PROTOCOL = 5
_PythonPickler: Any = pickle._Pickler

Shipping = Literal["by reference", "by value"]


class NotShippableError(Exception):
    """An object that must not be sent, although it could be pickled. The argument says why."""


class _TooManyObjectsError(Exception):
    """The canonical pickler has seen more objects than it should take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenPayload:
    """The bytes of one payload, and whether code travels in them."""

    data: bytes
    shipping: Shipping


class PayloadWriter:
    """Writes the payloads of one job.

    Args:
        search: The import path as it was before user code ran.
        is_loaded_here: Whether this process runs the job, too, as in a test. Then code of the main
            module is accepted, source files keep their full names, and classes that go by value
            are loaded as the classes of this process.
    """

    def __init__(self, search: ImportSearch, *, is_loaded_here: bool = False) -> None:
        self.search = search
        self.is_loaded_here = is_loaded_here
        self.class_names = _ClassNames(is_loaded_here=is_loaded_here)

    def write_all(self, payloads: Mapping[str, Any]) -> dict[str, WrittenPayload]:
        """Return the bytes of all payloads by id, in the order of the ids.

        Raises:
            Exception: whatever pickling raises for an object that cannot travel; ``culprits``
                tells why.
        """
        written = {name: self.write(payloads[name]) for name in sorted(payloads)}
        if self.class_names.count:
            digest = hashlib.sha256(b"".join(payload.data for payload in written.values()))
            self.class_names.rename(digest.hexdigest())
            written = {name: self.write(payloads[name]) for name in sorted(payloads)}
        return written

    def write(self, value: Any) -> WrittenPayload:
        """Return the bytes of a value; classes by value keep their first names."""
        try:
            return self._write(_CanonicalPickler, value)
        except _TooManyObjectsError:
            return self._write(_FastPickler, value)

    def _write(self, pickler_class: Any, value: Any) -> WrittenPayload:
        stream = io.BytesIO()
        pickler = pickler_class(stream, self)
        pickler.dump(value)
        shipping: Shipping = "by value" if pickler.rules.has_code else "by reference"
        return WrittenPayload(data=stream.getvalue(), shipping=shipping)


class _ClassNames:
    """The ids of classes by value for workers, in the order of their first use."""

    _bundles = itertools.count(1)

    def __init__(self, *, is_loaded_here: bool) -> None:
        # Two jobs of one process may have equal classes, which must not be taken for one another.
        self._suffix = f"-{os.getpid()}-{next(self._bundles)}" if is_loaded_here else ""
        self._is_loaded_here = is_loaded_here
        self._prefix = "class"
        self._classes: list[Any] = []

    @property
    def count(self) -> int:
        return len(self._classes)

    def name(self, cls: Any) -> None:
        """Assign the class an id, unless it has one of ours."""
        if not any(known is cls for known in self._classes):
            self._classes.append(cls)
            self._set(len(self._classes) - 1)

    def rename(self, prefix: str) -> None:
        """Change the prefix of all class ids."""
        self._prefix = prefix
        for index in range(self.count):
            self._set(index)

    def _set(self, index: int) -> None:
        class_id = f"{self._prefix}-{index}{self._suffix}"
        name_class(self._classes[index], class_id, is_loaded_here=self._is_loaded_here)


class _Rules:
    """The refusals and notes of both picklers."""

    def __init__(self, writer: PayloadWriter) -> None:
        self.writer = writer
        self.has_code = False

    def examine(self, value: Any) -> None:
        """Look at an object that is no plain data before it is pickled.

        Raises:
            RefusedError: it must not travel.
        """
        if isinstance(value, type(os.environ)):
            raise NotShippableError(
                "it is the environment of this machine, which may contain secrets"
            )
        if isinstance(value, types.FunctionType) or issubclass(type(value), type):
            self._examine_code(value)
        elif isinstance(value, types.ModuleType):
            self._require_importable(value.__name__)
        elif isinstance(value, typing.TypeVar):
            self.writer.class_names.name(value)

    def _examine_code(self, value: Any) -> None:
        if value in _BUILTIN_TYPES:
            return
        if cloudpickle._should_pickle_by_reference(value):
            module, _ = cloudpickle._lookup_module_and_qualname(value)
            self._require_importable(module.__name__)
            return
        if value.__module__ == "__main__" and not self.writer.is_loaded_here:
            raise NotShippableError("it is defined in __main__, which does not exist on workers")
        self.has_code = True
        forget_decoding(value)
        if isinstance(value, type):
            self.writer.class_names.name(value)

    def _require_importable(self, module_name: str) -> None:
        if module_name == "__main__" and self.writer.is_loaded_here:
            return
        problem = self.writer.search.problem(module_name)
        if problem is not None:
            raise NotShippableError(problem)

    def reduce_code(self, code: types.CodeType) -> Any:
        """Reduce a code object with a file name that is the same on every machine."""
        if self.writer.is_loaded_here:
            return cloudpickle._code_reduce(code)
        return cloudpickle._code_reduce(
            code.replace(co_filename=self.writer.search.shorten(code.co_filename))
        )


_BUILTIN_TYPES = frozenset(cloudpickle._BUILTIN_TYPE_NAMES) | {
    type(None),
    type(...),
    type(NotImplemented),
}
_PLAIN_TYPES = frozenset(
    {str, int, float, bool, bytes, bytearray, type(None), list, tuple, dict, set, frozenset}
)
_SORTABLE_TYPES = frozenset({str, int, bytes})


def _reduce_file(stream: Any) -> Any:
    """Refuse open files: cloudpickle would read the file and ship its content."""
    if stream is sys.stdout or stream is sys.stderr:
        return cloudpickle._file_reduce(stream)
    raise TypeError(f"cannot pickle {type(stream).__name__!r} object (an open file)")


def _dispatch_table(rules: _Rules) -> Mapping[Any, Callable[[Any], Any]]:
    own = {types.CodeType: rules.reduce_code, io.TextIOWrapper: _reduce_file}
    return ChainMap(own, cloudpickle.Pickler.dispatch_table)


class _FastPickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types.
    """cloudpickle's own pickler, in C, with our rules."""

    def __init__(self, stream: io.BytesIO, writer: PayloadWriter) -> None:
        super().__init__(stream, protocol=_PROTOCOL)
        self.rules = _Rules(writer)
        self.dispatch_table = _dispatch_table(self.rules)

    def reducer_override(self, obj: Any) -> Any:
        self.rules.examine(obj)
        return reduce_by_value(self, obj)

    def _function_getnewargs(self, func: Any) -> Any:
        return _new_function_arguments(func, self.globals_ref)


class _CanonicalPickler(_PythonPickler):  # type: ignore[misc]  # Not in the type stubs.
    """The pickler in Python, with one canonical form of strings and sets."""

    dispatch: ClassVar[dict[type, Any]] = dict(_PythonPickler.dispatch)

    # Methods of cloudpickle that need only ``globals_ref``.
    _dynamic_function_reduce = cloudpickle.Pickler._dynamic_function_reduce
    _function_reduce = cloudpickle.Pickler._function_reduce

    def __init__(
        self, stream: io.BytesIO, writer: PayloadWriter, open_sets: tuple[int, ...] = ()
    ) -> None:
        super().__init__(stream, protocol=_PROTOCOL)
        self.rules = _Rules(writer)
        self.dispatch_table = _dispatch_table(self.rules)
        self.globals_ref: dict[int, dict[str, Any]] = {}
        self._open_sets = open_sets
        self._object_count = 0
        self._texts: dict[Any, Any] = {}

    def reducer_override(self, obj: Any) -> Any:
        self._object_count += 1
        if self._object_count > CANONICAL_OBJECT_COUNT_MAX:
            raise _TooManyObjectsError
        if type(obj) in _PLAIN_TYPES:
            return NotImplemented
        self.rules.examine(obj)
        return reduce_by_value(self, obj)

    def _function_getnewargs(self, func: Any) -> Any:
        return _new_function_arguments(func, self.globals_ref)

    def _save_text(self, obj: Any) -> None:
        same = self._texts.setdefault(obj, obj)
        if same is not obj and id(same) in self.memo:
            self.write(self.get(self.memo[id(same)][0]))
        else:
            _PythonPickler.dispatch[type(obj)](self, same)

    def _save_set(self, obj: set[Any]) -> None:
        items = self._in_order(obj)
        self.write(pickle.EMPTY_SET)
        self.memoize(obj)
        self._save_items(items, pickle.ADDITEMS)

    def _save_frozenset(self, obj: frozenset[Any]) -> None:
        items = self._in_order(obj)
        self._save_items(items, b"")
        if id(obj) in self.memo:  # An item refers to the set, and has saved it.
            self.write(pickle.POP_MARK + self.get(self.memo[id(obj)][0]))
            return
        self.write(pickle.FROZENSET)
        self.memoize(obj)

    def _save_items(self, items: list[Any], end: bytes) -> None:
        self.write(pickle.MARK)
        for item in items:
            self.save(item)
        self.write(end)

    def _in_order(self, items: set[Any] | frozenset[Any]) -> list[Any]:
        if id(items) in self._open_sets:  # In a sort key, which is never loaded.
            return []
        if self._object_count + len(items) > CANONICAL_OBJECT_COUNT_MAX:
            raise _TooManyObjectsError
        kinds = {type(item) for item in items}
        if len(kinds) == 1 and kinds <= _SORTABLE_TYPES:
            return sorted(items)
        inner = (*self._open_sets, id(items))
        return sorted(items, key=lambda item: self._sort_key(item, inner))

    def _sort_key(self, item: Any, open_sets: tuple[int, ...]) -> bytes:
        stream = io.BytesIO()
        _CanonicalPickler(stream, self.rules.writer, open_sets).dump(item)
        return stream.getvalue()

    dispatch.update(
        {str: _save_text, bytes: _save_text, set: _save_set, frozenset: _save_frozenset}
    )


def _new_function_arguments(func: Any, globals_ref: dict[int, dict[str, Any]]) -> Any:
    """Return cloudpickle's arguments without ``__file__`` and ``__path__``.

    A function that names ``__file__`` still gets it, as it gets every global that it names.
    """
    kept = ("__package__", "__name__")
    names = {name: func.__globals__[name] for name in kept if name in func.__globals__}
    base_globals = globals_ref.setdefault(id(func.__globals__), names)
    code = func.__code__
    cells = func.__closure__ and tuple(cloudpickle._make_empty_cell() for _ in code.co_freevars)
    return code, base_globals, None, None, cells
