"""The change from one schema to another, and how stored values remain readable.

``compare`` is a pure function of two schemas. A change is *compatible* when every value that the
old schema could hold has one meaning in the new one: fields added with a default, removed, renamed
with an alias; int to float; a union, an enum or a literal that got more members. Where the bytes
have to be taken apart for it, ``SchemaFit.rewrite`` does so with plain data, before the new type
reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from bicycle_runtime.layouts.state import UNTYPED
from bicycle_runtime.state.values.schemas import Schema, fields_of, is_same, words

Rewrite = Callable[[Any], Any]

_MISSING: Any = object()
_WIDER: Mapping[Any, Rewrite | None] = {("int", "float"): None, ("bool", "int"): int}
_WRAPPERS = frozenset({"list", "tuple_of", "set", "frozenset"})
_ARRAYS = frozenset({"list", "tuple_of", "set", "frozenset", "tuple"})
_PLAIN_WORDS = frozenset({"none", "bool", "int", "float", "str", "bytes"})
_CLASSED = frozenset({"record", "enum"})


@dataclass(frozen=True, slots=True)
class SchemaFit:
    """The compatibility of an old schema with a new one.

    ``changes`` describes compatible changes, ``problems`` incompatible ones: with any problem, no
    value can be read. ``rewrite`` converts decoded MessagePack data for the new type, or is None if
    no conversion is needed.
    """

    changes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    rewrite: Rewrite | None = None


def compare(old: Schema, new: Schema) -> SchemaFit:
    """Return how values that were stored by an old schema are read by a new one.

    Example:
        >>> compare("int", "float").problems, compare("str", "int").problems
        ((), ('it was str and is int',))
    """
    if is_same(old, new):
        return SchemaFit()
    if UNTYPED in (old, new):
        return _compare_untyped(old, new)
    if "object" in (_kind(old), _kind(new)):
        return _objects(old, new)
    return _Comparison().of(old, new, stored_name="it")


def compare_keys(old: Schema, new: Schema) -> SchemaFit:
    """Return how keys of an old schema fit a new schema: their bytes must not change.

    An unknown type is not compared.
    """
    if UNTYPED in (old, new) or is_same(old, new):
        return SchemaFit()
    if names_classes(old) or names_classes(new):
        return SchemaFit(problems=(_was(old, new, "the key"),))
    fit = _Comparison().of(old, new, stored_name="the key")
    if fit.rewrite is not None:
        return SchemaFit(problems=(_was(old, new, "the key"),))
    return fit


def _compare_untyped(old: Schema, new: Schema) -> SchemaFit:
    """Compare schemas of which one is pickled: a pickled value fits any declaration."""
    if old == UNTYPED:
        return SchemaFit(changes=(f"it was pickled and is {words(new)}",))
    if names_classes(old):
        return SchemaFit(problems=(f"it was {words(old)} and no longer has a declared type",))
    return SchemaFit(changes=(f"it was {words(old)} and is pickled",))


def _objects(old: Schema, new: Schema) -> SchemaFit:
    """Compare schemas of pickled objects, which are read as their pickles describe."""
    if _kind(old) != _kind(new):
        return SchemaFit(problems=(_was(old, new, "it"),))
    if new.get("restores_itself"):
        return SchemaFit(changes=("its class restores it",))
    olds = {each["name"]: each["type"] for each in fields_of(old)}
    news = {each["name"]: each for each in fields_of(new)}
    if not olds:
        return SchemaFit()  # Nothing was known of it.
    added = [each for name, each in news.items() if name not in olds]
    problems = [f"field {name!r} was removed from the class" for name in olds if name not in news]
    problems += [
        _was(was, news[name]["type"], f"field {name!r}")
        for name, was in olds.items()
        if name in news and news[name]["type"] != was
    ]
    problems += [
        f"field {each['name']!r} was added, but is missing in pickled values"
        for each in added
        if new.get("is_fixed") or not each.get("is_optional")
    ]
    return SchemaFit(tuple(f"field {each['name']!r} was added" for each in added), tuple(problems))


class _Comparison:
    """One comparison; remembers the pairs of records that it is within."""

    def __init__(self) -> None:
        self._rewrites: list[_Recursion] = []

    def of(  # noqa: PLR0911  # one return for each kind of schema
        self, old: Schema, new: Schema, *, stored_name: str
    ) -> SchemaFit:
        if "again" in (_kind(old), _kind(new)):
            return self._again(old, new, stored_name)
        if "union" in (_kind(old), _kind(new)):
            return self._union(_members(old), _members(new), (old, new), stored_name)
        if _kind(old) == "record" and _kind(new) == "record":
            return self._record(old, new, stored_name)
        if _kind(old) != _kind(new):
            return self._scalar(old, new, stored_name)
        match _kind(old):
            case "literal":
                return _superset(old["values"], new["values"], (old, new), stored_name)
            case "enum":
                values = old["members"].values(), new["members"].values()
                return _superset(*values, (old, new), stored_name)
            case "tuple":
                return self._tuple(old, new, stored_name)
            case "dict":
                return self._dict(old, new, stored_name)
            case kind if kind in _WRAPPERS:
                inner = self.of(old["items"], new["items"], stored_name=f"an item of {stored_name}")
                return _map(inner, lambda rewrite: lambda raw: [rewrite(each) for each in raw])
            case _:
                return (
                    SchemaFit()
                    if old == new
                    else SchemaFit(problems=(_was(old, new, stored_name),))
                )

    def _scalar(self, old: Schema, new: Schema, stored_name: str) -> SchemaFit:
        pair = (old, new) if isinstance(old, str) and isinstance(new, str) else None
        is_wider = pair in _WIDER
        if _kind(old) == "literal" and isinstance(new, str):
            found = {type(value).__name__ for value in old["values"]}
            is_wider = found == {new}
        if is_wider:
            return SchemaFit((_was(old, new, stored_name),), rewrite=_WIDER.get(pair))
        return SchemaFit(problems=(_was(old, new, stored_name),))

    def _tuple(self, old: Schema, new: Schema, stored_name: str) -> SchemaFit:
        if len(old["items"]) != len(new["items"]):
            return SchemaFit(problems=(_was(old, new, stored_name),))
        fits = [
            self.of(one, other, stored_name=f"item {index} of {stored_name}")
            for index, (one, other) in enumerate(zip(old["items"], new["items"], strict=True))
        ]
        rewrites = [fit.rewrite or _itself for fit in fits]
        return _join(
            fits,
            lambda raw: [rewrite(each) for rewrite, each in zip(rewrites, raw, strict=True)],
        )

    def _dict(self, old: Schema, new: Schema, stored_name: str) -> SchemaFit:
        keys = self.of(old["keys"], new["keys"], stored_name=f"a key of {stored_name}")
        values = self.of(old["values"], new["values"], stored_name=f"a value of {stored_name}")
        of_key, of_value = keys.rewrite or _itself, values.rewrite or _itself
        return _join(
            [keys, values],
            lambda raw: {of_key(key): of_value(value) for key, value in raw.items()},
        )

    def _union(
        self, olds: list[Schema], news: list[Schema], whole: tuple[Schema, Schema], stored_name: str
    ) -> SchemaFit:
        found = [self._best(old, news, stored_name) for old in olds]
        if any(fit.problems for fit in found):
            return SchemaFit(problems=(_was(*whole, stored_name),))
        changes = tuple(change for fit in found for change in fit.changes)
        if not changes:
            changes = () if len(olds) == len(news) else (_was(*whole, stored_name),)
        if all(fit.rewrite is None for fit in found):
            return SchemaFit(changes=changes)
        cases = [(old, fit.rewrite or _itself) for old, fit in zip(olds, found, strict=True)]

        def rewrite(raw: Any) -> Any:
            part = next((part for old, part in cases if could_be(raw, old)), _itself)
            return part(raw)

        return SchemaFit(changes=changes, rewrite=rewrite)

    def _best(self, old: Schema, news: list[Schema], stored_name: str) -> SchemaFit:
        fits = [self.of(old, new, stored_name=stored_name) for new in news]
        return min(fits, key=lambda fit: (len(fit.problems) > 0, len(fit.changes)))

    def _again(self, old: Schema, new: Schema, stored_name: str) -> SchemaFit:
        if _kind(old) != "again" or _kind(new) != "again":
            return SchemaFit(problems=(_was(old, new, stored_name),))
        if old["up"] != new["up"]:
            return SchemaFit(problems=(f"{stored_name} contains itself at another depth",))
        return SchemaFit(rewrite=self._rewrites[-1 - old["up"]])

    def _record(self, old: Schema, new: Schema, stored_name: str) -> SchemaFit:
        recursion = _Recursion()
        self._rewrites.append(recursion)
        parts = [self._field(field, old, new) for field in new["fields"]]
        self._rewrites.pop()
        problems = [problem for part in parts for problem in part.fit.problems]
        problems += _gaps(parts, new)
        if old.get("tag") != new.get("tag"):
            problems.append(
                f"the tag of {stored_name} was {old.get('tag')} and is {new.get('tag')}"
            )
        used = {part.source for part in parts}
        removed = [each["name"] for each in old["fields"] if each["name"] not in used]
        changes = [change for part in parts for change in part.fit.changes]
        changes += [f"field {name!r} was removed" for name in removed]
        if problems:
            return SchemaFit(tuple(changes), tuple(problems))
        taker = _Taker(old, new, parts)
        is_whole = all(part.fit.rewrite is None for part in parts)
        if is_whole and taker.is_needless and not (removed and new.get("is_closed")):
            return SchemaFit(tuple(changes))
        recursion.rewrite = taker
        return SchemaFit(tuple(changes), rewrite=taker)

    def _field(self, field: Schema, old: Schema, new: Schema) -> _Part:
        olds = {each["name"]: each for each in old["fields"]}
        taken = {each["name"] for each in new["fields"]}
        name: str = field["name"]
        free = [alias for alias in field.get("aliases", ()) if alias in olds and alias not in taken]
        source = name if name in olds else next(iter(free), None)
        if source is None:
            if not field.get("is_optional"):
                text = f"field {name!r} was added without a default"
                return _Part(name, None, SchemaFit(problems=(text,)))
            return _Part(name, None, SchemaFit(changes=(f"field {name!r} was added",)))
        before = olds[source]
        fit = self.of(before["type"], field["type"], stored_name=f"field {name!r}")
        if source != name:
            changes = (f"field {source!r} is renamed to {name!r}", *fit.changes)
            fit = SchemaFit(changes, fit.problems, fit.rewrite)
        if before.get("may_be_absent") and not field.get("is_optional"):
            text = f"field {name!r} was optional and is now required"
            fit = SchemaFit(fit.changes, (*fit.problems, text), fit.rewrite)
        return _Part(name, source, fit)


@dataclass(frozen=True, slots=True)
class _Part:
    """The source of a field of the new record; ``source`` is None for an added field."""

    name: str
    source: str | None
    fit: SchemaFit


@dataclass(slots=True)
class _Recursion:
    """The rewrite of a record that holds itself, known once all its fields are."""

    rewrite: Rewrite | None = None

    def __call__(self, raw: Any) -> Any:
        return raw if self.rewrite is None else self.rewrite(raw)


@dataclass(slots=True)
class _Taker:
    """A converter of stored records: maps old fields to new fields."""

    old: Schema
    new: Schema
    parts: list[_Part]
    _stored_names: dict[str, int] = field(init=False)
    _omitted: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        first = int(self.old["form"] == "array" and self.old.get("tag") is not None)
        names = [each["name"] for each in self.old["fields"]]
        self._stored_names = {name: first + index for index, name in enumerate(names)}
        self._omitted = {
            each["name"]: each["default"]
            for each in self.old["fields"]
            if self.old.get("omits_defaults") and "default" in each
        }

    @property
    def is_needless(self) -> bool:
        """Return whether the new type can read the old bytes directly."""
        if self._omitted and any(
            self._omitted[each["name"]] != each.get("default", _MISSING)
            for each in self.new["fields"]
            if each["name"] in self._omitted
        ):
            return False
        if "array" in (self.old["form"], self.new["form"]):
            names = [each["name"] for each in self.old["fields"]]
            return self.old["form"] == self.new["form"] and names == [
                part.name for part in self.parts
            ]
        return all(part.source in (part.name, None) for part in self.parts)

    def __call__(self, raw: Any) -> Any:
        found = [(part.name, self._take(part, raw)) for part in self.parts]
        tag = self.new.get("tag")
        if self.new["form"] == "map":
            record = {name: value for name, value in found if value is not _MISSING}
            return record if tag is None else {tag[0]: tag[1], **record}
        values = [value for _, value in found]
        while values and values[-1] is _MISSING:
            values.pop()
        defaults = [each.get("default") for each in self.new["fields"]]
        row = [defaults[i] if value is _MISSING else value for i, value in enumerate(values)]
        return row if tag is None else [tag[1], *row]

    def _take(self, part: _Part, raw: Any) -> Any:
        if part.source is None:
            return _MISSING
        if isinstance(raw, dict):
            value = raw.get(part.source, _MISSING)
        else:
            stored_name = self._stored_names[part.source]
            value = raw[stored_name] if stored_name < len(raw) else _MISSING
        if value is _MISSING:
            return self._omitted.get(part.source, _MISSING)
        return value if part.fit.rewrite is None else part.fit.rewrite(value)


def _gaps(parts: list[_Part], new: Schema) -> list[str]:
    """Return fields without a known default that were added to a row before others."""
    if new["form"] != "array":
        return []
    last = max((i for i, part in enumerate(parts) if part.source is not None), default=-1)
    return [
        f"field {part.name!r} was added before other fields and its default is not plain: move it "
        "to the end"
        for part, each in list(zip(parts, new["fields"], strict=True))[:last]
        if part.source is None and each.get("is_optional") and "default" not in each
    ]


def _kind(schema: Schema) -> str:
    kind: str = schema if isinstance(schema, str) else schema["type"]
    return kind


def _members(schema: Schema) -> list[Schema]:
    members: list[Schema] = schema["of"] if _kind(schema) == "union" else [schema]
    return members


def _was(old: Schema, new: Schema, stored_name: str) -> str:
    return f"{stored_name} was {words(old)} and is {words(new)}"


def _itself(raw: Any) -> Any:
    return raw


def _superset(
    old: Iterable[Any], new: Iterable[Any], whole: tuple[Schema, Schema], stored_name: str
) -> SchemaFit:
    olds = {(type(value), value) for value in old}
    news = {(type(value), value) for value in new}
    if not olds <= news:
        return SchemaFit(problems=(_was(*whole, stored_name),))
    return SchemaFit() if olds == news else SchemaFit(changes=(_was(*whole, stored_name),))


def _map(inner: SchemaFit, wrap: Callable[[Rewrite], Rewrite]) -> SchemaFit:
    rewrite = None if inner.rewrite is None else wrap(inner.rewrite)
    return SchemaFit(inner.changes, inner.problems, rewrite)


def _join(fits: list[SchemaFit], rewrite: Rewrite) -> SchemaFit:
    return SchemaFit(
        tuple(change for fit in fits for change in fit.changes),
        tuple(problem for fit in fits for problem in fit.problems),
        rewrite if any(fit.rewrite is not None for fit in fits) else None,
    )


def could_be(raw: Any, schema: Schema) -> bool:  # noqa: PLR0911  # one return for each kind
    """Return whether a member of a union could have stored plain data."""
    kind = _kind(schema)
    if kind == "record":
        tag = schema.get("tag")
        if schema["form"] == "array":
            return isinstance(raw, list) and (tag is None or raw[:1] == [tag[1]])
        return isinstance(raw, dict) and (tag is None or raw.get(tag[0]) == tag[1])
    if kind == "dict":
        return isinstance(raw, dict)
    if kind in _ARRAYS:
        return isinstance(raw, list)
    if kind in ("literal", "enum"):
        return raw in (schema["values"] if kind == "literal" else schema["members"].values())
    if kind in _PLAIN_WORDS:
        return type(raw).__name__ == {"none": "NoneType"}.get(kind, kind)
    return isinstance(raw, str | bytes | datetime)


def names_classes(schema: Schema) -> bool:
    """Return whether a schema contains records or enums."""
    if isinstance(schema, str):
        return False
    if schema["type"] in _CLASSED:
        return True
    inner = [schema[name] for name in ("items", "keys", "values") if name in schema]
    inner += schema.get("of", [])
    parts = [part for each in inner for part in (each if isinstance(each, list) else [each])]
    return any(names_classes(part) for part in parts if isinstance(part, str | dict))
