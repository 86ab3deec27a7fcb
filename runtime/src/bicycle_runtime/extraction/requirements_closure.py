"""Which distributions a plugin stands on: its requirements, and theirs, as far as installed.

Only metadata is read. A plugin's *closure* is the plugin and all it needs; what the runtime needs
of its own is known the same way. Requirements that are not installed are no matter here: importing
says so, with the line that does it. Nothing is packed here; ``packing`` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import importlib_metadata
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from bicycle_runtime.extraction.errors import EnvironmentConflictError

__all__ = ["HELD_BY_RUNTIME", "Closure", "closure_of", "installed", "require_no_conflict"]

# One process has one of each, and both sides of every pipe must have the same: never a plugin's.
HELD_BY_RUNTIME = frozenset(
    {"bicycle-sdk", "bicycle-runtime", "pyspark", "py4j", "msgspec", "cloudpickle"}
)
_RUNTIME = "bicycle-runtime"


@dataclass(frozen=True, slots=True)
class Closure:
    """Distributions by canonical name, and what is asked of each: pairs of asker and requirement.

    Names that are asked for and not installed are in ``asked`` only.
    """

    members: Mapping[str, Any]
    asked: Mapping[str, list[tuple[str, Requirement]]]


def installed(path: Iterable[str]) -> dict[str, Any]:
    """Return the distributions of an import path by canonical name; the first of a name counts."""
    found: dict[str, Any] = {}
    for dist in importlib_metadata.distributions(path=list(path)):
        name = _name_of(dist)
        if name is not None:
            found.setdefault(canonicalize_name(name), dist)
    return found


def _name_of(dist: Any) -> str | None:
    try:
        return dist.metadata["Name"] or None
    except Exception:  # noqa: BLE001 - Metadata is foreign data; a broken one is nobody's library.
        return None


def closure_of(root: str, among: Mapping[str, Any]) -> Closure:
    """Return a distribution and all that it needs.

    Args:
        root: Name of the distribution.
        among: What is installed, by canonical name.
    """
    members: dict[str, Any] = {}
    asked: dict[str, list[tuple[str, Requirement]]] = {}
    waiting: list[tuple[str, frozenset[str]]] = [(canonicalize_name(root), frozenset())]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, extras = item = waiting.pop(0)
        if item in seen or name not in among:
            continue
        seen.add(item)
        members[name] = among[name]
        for requirement in _requirements(among[name], extras):
            needed = canonicalize_name(requirement.name)
            asked.setdefault(needed, []).append((name, requirement))
            waiting.append((needed, frozenset(requirement.extras)))
    return Closure(members=members, asked=asked)


def require_no_conflict(plugin: Closure, runtime_path: Iterable[str], *, name: str) -> None:
    """Refuse a plugin that can not live in one process with the runtime.

    What the runtime holds itself must be of a version that the plugin takes; of other libraries the
    plugin brings its own, which must be of a version that the runtime takes.

    Raises:
        EnvironmentConflictError: with library, versions and who asks for what.
    """
    ours = closure_of(_RUNTIME, installed(runtime_path))
    for library in sorted(plugin.asked.keys() & ours.members.keys() & HELD_BY_RUNTIME):
        _require(plugin.asked[library], ours.members[library].version, library, name)
    for library in sorted(plugin.members.keys() & ours.asked.keys() - HELD_BY_RUNTIME):
        _require(ours.asked[library], plugin.members[library].version, library, name)


def _requirements(dist: Any, extras: frozenset[str]) -> Iterator[Requirement]:
    for text in dist.metadata.get_all("Requires-Dist") or []:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:  # Nobody can meet it; discovery tells about the SDK's.
            continue
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield requirement


def _require(
    asked: Iterable[tuple[str, Requirement]], version: str, library: str, plugin: str
) -> None:
    for asker, requirement in asked:
        if not requirement.specifier.contains(version, prereleases=True):
            raise EnvironmentConflictError(
                plugin=plugin, library=library, found=version, asker=asker,
                requirement=f"{library}{requirement.specifier}",
            )  # fmt: skip
