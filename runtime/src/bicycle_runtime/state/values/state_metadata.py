"""Metadata of states: the schema versions of their values, as kept in manifests.

A *schema version* is the author's version number and the schema that follows from the type. A state
keeps all schema versions that its values may still be written in; a value names its version by the
index, and without an index it has the first. So files of several schema versions can be merged and
moved without knowing types. The location of a state's entries never changes: a renamed state keeps
its place.

``DeclaredState`` is a state as the code of a job declares it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from bicycle_runtime.layouts.state import (
    SPACES,
    UNTYPED,
    OperatorStateMetadata,
    SchemaVersion,
    StateMetadata,
)
from bicycle_runtime.state.values.schema_changes import SchemaFit, compare, compare_keys
from bicycle_runtime.state.values.schemas import Schema, describe, describe_key, is_same, words
from bicycle_sdk.state import MapStateDescriptor, StateDescriptor

Verdict = Literal["kept", "migrated", "new", "dropped", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredState:
    """A state as the present code declares it; the fields are as in ``StateMetadata``.

    ``migrates`` means that a hook exists for values of earlier versions.
    """

    name: str
    kind: str
    schema: Schema
    keys: Schema = UNTYPED
    version: int = 1
    aliases: tuple[str, ...] = ()
    migrates: bool = False
    settings: tuple[tuple[str, Any], ...] = ()
    stored_name: str | None = None

    @property
    def space(self) -> str:
        """Return the space in which its name and stored name are unique."""
        return SPACES.get(self.kind, "state")

    @property
    def schema_version(self) -> SchemaVersion:
        """The schema version that its values get."""
        return SchemaVersion(version=self.version, schema=self.schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChange:
    """The effect of new code on one state.

    ``details`` lists migrations, or reasons of a refusal.
    """

    operator: str
    state: str
    verdict: Verdict
    details: tuple[str, ...] = ()
    stored: str | None = None
    declared: str | None = None


def find(known: OperatorStateMetadata, declared: DeclaredState) -> StateMetadata | None:
    """Return the known state that a declared state continues."""
    return match(known.states, [declared]).get((declared.space, declared.name))


def taken_names(known: OperatorStateMetadata) -> set[str]:
    """Return ``space:stored_name`` of all places that no new state may have."""
    return {*known.dropped, *(f"{state.space}:{state.stored_name}" for state in known.states)}


def evolve(
    operator: str, stored: OperatorStateMetadata | None, declared: Sequence[DeclaredState], *,
    keys: Schema = UNTYPED, may_ask: Callable[[StateMetadata], bool] = lambda _: True,
) -> tuple[OperatorStateMetadata, list[StateChange]]:  # fmt: skip
    """Return the new metadata of an operator's states, and the change of each state.

    Args:
        operator: Its uid.
        stored: The metadata in the manifest, or None.
        declared: The code's declarations before it runs.
        keys: Schema of its keys.
        may_ask: Returns whether the code may still request a state that a function requested.
    """
    known = stored or OperatorStateMetadata()
    changes: list[StateChange] = []
    fit = compare_keys(known.keys, keys)
    if fit.problems:
        changes.append(
            StateChange(
                operator=operator, state="keys", verdict="refused", details=fit.problems,
                stored=words(known.keys), declared=words(keys),
            )
        )  # fmt: skip
    matched = match(known.states, declared)
    taken = taken_names(known)
    states: list[StateMetadata] = []
    for each in declared:
        former = matched.get((each.space, each.name))
        state, change = evolve_state(operator, former, each, taken=taken)
        taken.add(f"{state.space}:{state.stored_name}")
        states.append(state)
        changes.append(change)
    used = {(state.space, state.stored_name) for state in states}
    dropped = list(known.dropped)
    for state in known.states:
        if (state.space, state.stored_name) in used:
            continue
        if state.is_asked and may_ask(state):
            states.append(state)
            changes.append(StateChange(operator=operator, state=state.name, verdict="kept"))
        else:
            dropped.append(f"{state.space}:{state.stored_name}")
            changes.append(
                StateChange(
                    operator=operator, state=state.name, verdict="dropped",
                    stored=describe_version(state.schema_version),
                )
            )  # fmt: skip
    schema_versions = OperatorStateMetadata(
        states=tuple(states),
        keys=known.keys if keys == UNTYPED else keys,
        dropped=tuple(dropped),
    )
    return schema_versions, changes


def evolve_state(
    operator: str, stored: StateMetadata | None, declared: DeclaredState,
    *, taken: Iterable[str] = (), is_asked: bool = False, is_told: bool = False,
) -> tuple[StateMetadata, StateChange]:  # fmt: skip
    """Return the new metadata of a state, and its change.

    Args:
        operator: Uid of its operator.
        stored: Its metadata in the manifest, or None.
        declared: The state as it is now.
        taken: ``space:stored_name`` of other states.
        is_asked: Whether it was not known before a function requested it.
        is_told: Whether the code of the function has its name as a text.
    """
    if stored is None:
        stored_name = declared.stored_name or _free_name(declared, set(taken))
        state = StateMetadata(
            name=declared.name,
            stored_name=stored_name,
            kind=declared.kind,
            schema_versions=(declared.schema_version,),
            keys=declared.keys,
            settings=dict(declared.settings),
            is_asked=is_asked,
            is_told=is_told,
        )
        change = StateChange(
            operator=operator, state=declared.name, verdict="new",
            declared=describe_version(declared.schema_version),
        )  # fmt: skip
        return state, change
    schema_versions = stored.schema_versions
    current = _index_of(schema_versions, declared.schema_version)
    if current == len(schema_versions):
        schema_versions = (*schema_versions, declared.schema_version)
    state = StateMetadata(
        name=declared.name,
        stored_name=stored.stored_name,
        kind=declared.kind,
        schema_versions=schema_versions,
        keys=stored.keys if declared.keys == UNTYPED else declared.keys,
        settings=dict(declared.settings),
        current=current,
        is_asked=is_asked,
        is_told=is_told,
    )
    return state, _change_of(operator, stored, declared)


def match(
    states: Iterable[StateMetadata], declared: Sequence[DeclaredState]
) -> dict[tuple[str, str], StateMetadata]:
    """Return the stored state that each declared state continues, by space and name.

    States match by name, else by alias, else by stored name: so earlier code finds a state again
    after a rename.
    """
    free = {(state.space, state.name): state for state in states}
    found: dict[tuple[str, str], StateMetadata] = {}

    def claim(names_of: Callable[[DeclaredState], Iterable[str]]) -> None:
        for each in declared:
            candidates = [(each.space, name) for name in names_of(each)]
            stored_name = next(
                (stored_name for stored_name in candidates if stored_name in free), None
            )
            if stored_name is not None and (each.space, each.name) not in found:
                found[each.space, each.name] = free.pop(stored_name)

    claim(lambda each: (each.name,))
    claim(lambda each: each.aliases)
    free = {(state.space, state.stored_name): state for state in free.values()}
    claim(lambda each: (each.stored_name or each.name,))
    return found


def fit_of(stored: SchemaVersion, declared: DeclaredState) -> SchemaFit:
    """Return how values of a stored schema fit the declared schema."""
    if stored.version == declared.version:
        return compare(stored.schema, declared.schema)
    if stored.version > declared.version:
        text = f"version {stored.version} wrote it, but the current version is {declared.version}"
        return SchemaFit(problems=(text,))
    if declared.migrates:
        return SchemaFit(changes=(f"by its hook from version {stored.version}",))
    text = f"version {stored.version} became {declared.version} without a migration hook"
    return SchemaFit(problems=(text,))


def _index_of(schema_versions: Sequence[SchemaVersion], schema_version: SchemaVersion) -> int:
    for index, known in enumerate(schema_versions):
        if known.version == schema_version.version and is_same(known.schema, schema_version.schema):
            return index
    return len(schema_versions)


def _change_of(operator: str, stored: StateMetadata, declared: DeclaredState) -> StateChange:
    problems: list[str] = []
    details: list[str] = []
    if stored.name != declared.name:
        details.append(f"its former name is {stored.name!r}")
    if stored.kind != declared.kind:
        problems.append(f"it was {stored.kind} state and is now {declared.kind} state")
    for name, value in declared.settings:
        if name in stored.settings and stored.settings[name] != value:
            problems.append(f"{name} was {stored.settings[name]} and is {value}")
    keys = compare_keys(stored.keys, declared.keys)
    problems += keys.problems
    if not problems:
        fit = fit_of(stored.schema_version, declared)
        details += fit.changes
        problems += fit.problems
        for former in stored.schema_versions:
            earlier = (
                fit_of(former, declared).problems if former is not stored.schema_version else ()
            )
            problems += [f"data of {describe_version(former)} may remain: {p}" for p in earlier]
    verdict: Verdict = "refused" if problems else "migrated" if details else "kept"
    return StateChange(
        operator=operator,
        state=declared.name,
        verdict=verdict,
        details=tuple(problems or details),
        stored=describe_version(stored.schema_version),
        declared=describe_version(declared.schema_version),
    )


def _free_name(declared: DeclaredState, taken: set[str]) -> str:
    stored_name, number = declared.name, 1
    while f"{declared.space}:{stored_name}" in taken:
        number += 1
        stored_name = f"{declared.name}~{number}"
    return stored_name


def describe_version(schema_version: SchemaVersion) -> str:
    """Return a schema version for people."""
    text = "untyped" if schema_version.schema == UNTYPED else words(schema_version.schema)
    return text if schema_version.version == 1 else f"{text} (version {schema_version.version})"


ACCUMULATOR = "$accumulator"
# The layout of the entries of each kind of state; part of the state format.
SHAPES = {
    "value": "value",
    "reducing": "value",
    "aggregating": "value",
    "list": "list",
    "map": "map",
    "operator_list": "operator_list",
    "union_list": "union_list",
}

LIST_KINDS = ("operator_list", "union_list")  # States of subtasks, which a restore divides.


def keyed_state(descriptor: StateDescriptor) -> DeclaredState:
    """Return the declared state of a descriptor."""
    key_type = descriptor.key_type if isinstance(descriptor, MapStateDescriptor) else None
    return DeclaredState(
        name=descriptor.name,
        kind=SHAPES[descriptor.kind],
        schema=describe(descriptor.stored_type),
        keys=describe_key(key_type),
        version=descriptor.version,
        aliases=tuple(descriptor.aliases),
        migrates=descriptor.migrate is not None,
    )


def accumulator_state(value_type: Any) -> DeclaredState:
    """Return the state of a running reduce; its type is None when it is not known."""
    return DeclaredState(
        name=ACCUMULATOR, kind="accumulator", schema=describe(value_type), stored_name=ACCUMULATOR
    )
