"""Pickling by value of classes and functions that workers cannot import.

cloudpickle decides which parts go by value, and writes functions. Classes are written here, because
cloudpickle changes some of them:

* The markers of ``dataclasses`` (``MISSING`` and others) are compared by identity, so they are
  pickled by reference. A copy of one is taken for a default value.
* A class is made once in a process. When a process loads a class that it has pickled itself or has
  loaded before, it gets that class unchanged: its methods keep their globals.
* Enums keep their aliases, composite flags, attributes of members, and values of mixed-in types.
* A ``msgspec.Struct`` keeps its fields: its metaclass reads them only while the class is made.
* A type made by ``NewType`` in a function can be pickled.
* A class keeps its annotations, which Python 3.14 computes on demand and cloudpickle leaves out.

``msgspec`` stores a cache in each class that it decodes. The cache cannot be pickled, so it is
removed before the class is pickled; msgspec makes it again.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import io
import sys
import types
import typing
import weakref
from collections.abc import Callable
from typing import Any

import msgspec
from cloudpickle import cloudpickle

_PROTOCOL = 5
_NOTES = "__msgspec_cache__"
_MARKERS = {
    id(value): name
    for name, value in vars(dataclasses).items()
    if type(value).__module__ == "dataclasses" and not isinstance(value, type)
}
# Classes of this process that are complete: nothing that is loaded changes them.
_COMPLETE: weakref.WeakSet[type] = weakref.WeakSet()


def pickle_by_value(value: Any) -> bytes:
    """Pickle a value; classes and functions that cannot be imported go by value."""
    stream = io.BytesIO()
    _Pickler(stream, protocol=_PROTOCOL).dump(value)
    return stream.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types.
    def reducer_override(self, obj: Any) -> Any:
        return reduce_by_value(self, obj)


def reduce_by_value(pickler: Any, obj: Any) -> Any:
    """Reduce an object for a pickler, which has the methods of cloudpickle's.

    Returns:
        What ``reducer_override`` returns.
    """
    if id(obj) in _MARKERS:
        return getattr, (dataclasses, _MARKERS[id(obj)])
    if isinstance(obj, typing.NewType):
        return _reduce_new_type(obj)
    if issubclass(type(obj), type):
        forget_decoding(obj)
        if not _goes_by_reference(obj):
            return _reduce_class(obj)
    return cloudpickle.Pickler.reducer_override(pickler, obj)


def forget_decoding(part: Any) -> None:
    """Remove the cache of msgspec from an object if it is a class that has one."""
    if isinstance(part, type) and _NOTES in vars(part):
        delattr(part, _NOTES)


def name_class(cls: Any, class_id: str, *, is_loaded_here: bool) -> None:
    """Set the id under which processes know a class that goes by value.

    Args:
        cls: The class, or a type variable.
        class_id: The id; two different classes never have one id.
        is_loaded_here: Whether this process, too, finds the class by the id.
    """
    cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS[cls] = class_id
    if is_loaded_here:
        cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID[class_id] = cls


def _goes_by_reference(cls: type) -> bool:
    known = {type(None), type(...), type(NotImplemented)}
    return (
        cls in known
        or cls in cloudpickle._BUILTIN_TYPE_NAMES
        or cloudpickle._should_pickle_by_reference(cls)
    )


def _reduce_new_type(declared: typing.NewType) -> Any:
    module = declared.__module__ or ""
    known = getattr(sys.modules.get(module), declared.__name__, None)
    if known is declared and module != "__main__":
        return NotImplemented
    return typing.NewType, (declared.__name__, declared.__supertype__), {"__module__": module}


def _reduce_class(cls: Any) -> Any:
    _COMPLETE.add(cls)
    class_id = cloudpickle._get_or_create_tracker_id(cls)
    make: Callable[[tuple[Any, ...]], Any]
    arguments: tuple[Any, ...]
    if issubclass(cls, enum.Enum):
        make, arguments, state = _make_enum, _enum_arguments(cls), _enum_state(cls)
    elif isinstance(cls, type(msgspec.Struct)):
        make, arguments, state = _make_struct, _struct_arguments(cls), _struct_state(cls)
    else:
        # The qualified name is left out, as the bytes of keys in old checkpoints lack it.
        kind, name, bases, options, *_ = cloudpickle._class_getnewargs(cls)
        make, arguments = _make_plain, (kind, name, bases, options)
        state = _class_state(cls)
    return _make_class, (make, class_id, arguments), state, None, None, _complete_class


def _class_state(cls: Any) -> dict[str, Any]:
    """Return the attributes of a class, with its annotations."""
    state: dict[str, Any] = cloudpickle._class_getstate(cls)[0]
    if sys.version_info >= (3, 14):
        state.pop("__annotations_cache__", None)
        if annotations := _own_annotations(cls):
            state["__annotations__"] = annotations
    return state


def _own_annotations(cls: Any) -> dict[str, Any]:
    """Return the own annotations of a class, as texts where a name is undefined."""
    if sys.version_info >= (3, 14):
        import annotationlib  # Only Python 3.14 and newer have it.

        try:
            return annotationlib.get_annotations(cls)
        except NameError:
            return annotationlib.get_annotations(cls, format=annotationlib.Format.STRING)
    return inspect.get_annotations(cls)


def _make_class(make: Any, class_id: str, arguments: tuple[Any, ...]) -> Any:
    """Return the class with an id; create it, without references, if it is new here."""
    known = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.get(class_id)
    if known is None:
        known = cloudpickle._lookup_class_or_track(class_id, make(arguments))
    return known


def _complete_class(cls: Any, state: dict[str, Any]) -> Any:
    """Set the attributes of a class that was just created; leave any other unchanged."""
    if cls not in _COMPLETE:
        for member, attributes in state.pop(_MEMBERS, {}).items():
            vars(cls[member]).update(attributes)
        cloudpickle._class_setstate(cls, (state, {}))
        _COMPLETE.add(cls)
    return cls


def _make_plain(arguments: tuple[Any, ...]) -> Any:
    kind, name, bases, options = arguments
    named = {sys.intern(key): value for key, value in options.items()}
    return types.new_class(name, bases, {"metaclass": kind}, lambda space: space.update(named))


# Enums.

_MEMBERS = "members of the enum"
_MEMBER_ATTRIBUTES = frozenset(
    {"_value_", "_name_", "__objclass__", "_sort_order_", "_inverted_", "_args_"}
)
# Of the names with one underscore on both sides, the metaclass makes all but these.
_ENUM_HOOKS = frozenset({"_missing_", "_numeric_repr_", "_new_member_", "_use_args_"})


def _enum_arguments(cls: Any) -> tuple[Any, ...]:
    members = [
        (name, _new_arguments(cls._member_type_, member), member._value_)
        for name, member in cls.__members__.items()
    ]
    boundary = {"boundary": cls._boundary_} if issubclass(cls, enum.Flag) else {}
    return type(cls), cls.__name__, cls.__bases__, cls.__qualname__, members, boundary


def _new_arguments(member_type: Any, member: Any) -> tuple[Any, ...]:
    """Return the arguments that make the part of a member that is of a mixed-in type."""
    if hasattr(member_type, "__getnewargs__"):
        return tuple(member_type.__getnewargs__(member))
    if member_type.__reduce__ is not object.__reduce__:
        return tuple(member_type.__reduce__(member)[1])
    return ()


def _make_enum(arguments: tuple[Any, ...]) -> Any:
    """Return an enum with its members and aliases, but without its other attributes."""
    kind, name, bases, qualified, members, boundary = arguments

    def make_member(cls: Any, *given: Any) -> Any:
        parts, value = given if len(given) == 2 else given[0]
        member = cls._member_type_.__new__(cls, *parts)
        member._value_ = value
        return member

    space = kind.__prepare__(name, bases)
    space.update({"__qualname__": qualified})
    space["__new__"] = make_member
    space["__init__"] = lambda *_: None
    for member, parts, value in members:
        space[member] = (parts, value)
    made = kind.__new__(kind, name, bases, space, **boundary)
    for temporary in ("__new__", "__new_member__", "__init__"):
        if temporary in vars(made):
            type.__delattr__(made, temporary)
    return made


def _enum_state(cls: Any) -> dict[str, Any]:
    members = cls.__members__
    kept = {
        name: value
        for name, value in _class_state(cls).items()
        if name not in members and (name in _ENUM_HOOKS or not _is_enum_name(name))
    }
    attributes = {
        name: {key: value for key, value in vars(member).items() if key not in _MEMBER_ATTRIBUTES}
        for name, member in members.items()
        if member._name_ == name
    }
    return {**kept, _MEMBERS: {name: values for name, values in attributes.items() if values}}


def _is_enum_name(name: str) -> bool:
    return name[:1] == name[-1:] == "_" and not name.startswith("__")


# Structs of msgspec.

_STRUCT_OPTIONS = (
    "frozen", "eq", "order", "array_like", "gc", "repr_omit_defaults", "omit_defaults",
    "forbid_unknown_fields", "weakref", "dict", "cache_hash", "tag", "tag_field",
)  # fmt: skip
_STRUCT_SPACE = frozenset(
    {"__annotations__", "__annotate__", "__annotate_func__", "__match_args__", "__slots__"}
)


def _struct_arguments(cls: Any) -> tuple[Any, ...]:
    own = _own_annotations(cls)
    fields, defaults = cls.__struct_fields__, cls.__struct_defaults__
    found = dict(zip(fields[len(fields) - len(defaults) :], defaults, strict=True))
    renamed = dict(zip(fields, cls.__struct_encode_fields__, strict=True))
    options = {name: getattr(cls.__struct_config__, name) for name in _STRUCT_OPTIONS}
    space: dict[str, Any] = {"__module__": cls.__module__, "__annotations__": own}
    factories: dict[str, Any] = {}
    for name, default in found.items():
        if name not in own or default is msgspec.NODEFAULT:
            continue
        factory = getattr(default, "factory", None) if _is_factory(default) else None
        (space if factory is None else factories)[name] = default if factory is None else factory
    return (
        type(cls), cls.__name__, cloudpickle._get_bases(cls), space, factories,
        {
            **options,
            "kw_only": any(name in fields and name not in cls.__match_args__ for name in own),
            "rename": {name: renamed[name] for name in own if name in renamed},
        },
        hasattr(cls, "__post_init__"),
    )  # fmt: skip


def _is_factory(default: Any) -> bool:
    return type(default).__module__ == "msgspec._core" and type(default).__name__ == "Factory"


def _make_struct(arguments: tuple[Any, ...]) -> Any:
    kind, name, bases, space, factories, options, has_hook = arguments
    filled = {**space, **{key: msgspec.field(default_factory=factories[key]) for key in factories}}
    if has_hook:
        # The metaclass looks for the hook once, and the hook may refer to the class.
        filled["__post_init__"] = lambda value: type(value).__post_init__(value)
    return types.new_class(
        name, bases, {"metaclass": kind, **options}, lambda target: target.update(filled)
    )


def _struct_state(cls: Any) -> dict[str, Any]:
    fields = cls.__struct_fields__
    return {
        name: value
        for name, value in _class_state(cls).items()
        if name not in fields and name not in _STRUCT_SPACE and not name.startswith("__struct_")
    }
