"""The installed plugins, found by the metadata of distributions alone.

Nothing of a plugin is imported, so a broken one costs nothing here: it is listed like any other,
and ``check`` says what is wrong with it. What is refused already here (one name twice, an entry
point that cannot be read) is listed too, with its reason. This module does not cache: an upgrade
is seen at the next call.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import importlib_metadata

from bicycle_runtime.extraction.errors import PLUGIN_NOT_FOUND, PLUGIN_REFUSED
from bicycle_runtime.extraction.requirement import sdk_specifier
from bicycle_sdk.entry_points import entry_lines
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.installed import ENTRY_POINT_GROUP

_TARGET = re.compile(r"(?P<module>[\w.]+)\s*:\s*(?P<attribute>[\w.]+)\s*(?:\[[^\]]*\])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginRef:
    """The location of an installed plugin: all data needed to load it elsewhere.

    ``attribute`` is the name of an object in ``module``, or of an SQL file in that package; without
    the file, of the folder of SQL files with its stem.
    ``location`` is the directory (or archive) that holds the distribution; ``sdk_requirement`` is
    the version specifier on the SDK, None when the distribution does not ask for the SDK.
    ``version`` takes the place of the version that its mark says, where it is not None.
    """

    name: str
    module: str
    attribute: str
    dist_name: str
    dist_version: str
    location: str
    sdk_requirement: str | None = None
    version: str | None = None

    @property
    def is_sql(self) -> bool:
        """True if the attribute is an SQL file in the package ``module``."""
        return self.attribute.endswith(".sql")

    @property
    def package(self) -> str:
        """The top-level package or module."""
        return self.module.partition(".")[0]

    @property
    def target(self) -> str:
        """The entry point's value, ``module:attribute``."""
        return f"{self.module}:{self.attribute}"

    @property
    def dist(self) -> str:
        """Name and version of the distribution, for people."""
        return f"{self.dist_name} {self.dist_version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedPlugin:
    """An installed plugin that cannot be used, with the distributions that bring it."""

    name: str
    reason: str
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledPlugins:
    """The installed plugins, sorted by name: usable ones, and refused ones."""

    found: tuple[PluginRef, ...]
    refused: tuple[RefusedPlugin, ...]

    def find(self, name: str) -> PluginRef:
        """Return the plugin of this name.

        Raises:
            PLUGIN_REFUSED: it is installed but refused.
            PLUGIN_NOT_FOUND: it is not installed; the error lists close names and all names.
        """
        for ref in self.found:
            if ref.name == name:
                return ref
        for refusal in self.refused:
            if refusal.name == name:
                raise _refusal_error(refusal)
        raise self._not_found(name)

    def _not_found(self, name: str) -> BicycleError:
        known = [ref.name for ref in self.found]
        close = difflib.get_close_matches(name, known)
        return PLUGIN_NOT_FOUND(
            name=name,
            known=known,
            close_matches=close,
            suggestion=f" (did you mean {close[0]!r}?)" if close else "",
            known_text=", ".join(known) or "none",
        )


def discover(path: list[str] | None = None) -> InstalledPlugins:
    """Find all plugins in the metadata of installed distributions, without imports.

    Args:
        path: Directories to search, as ``sys.path``, which is the default. A distribution that lies
            in two of them counts where it is found first, as when importing.

    Returns:
        What was found and what was refused, each sorted by name.
    """
    candidates: dict[str, list[PluginRef]] = {}
    refused: list[RefusedPlugin] = []
    for item in _candidates(sys.path if path is None else path):
        if isinstance(item, RefusedPlugin):
            refused.append(item)
        else:
            candidates.setdefault(item.name, []).append(item)
    refused += [_conflict(refs) for refs in candidates.values() if len(refs) > 1]
    taken = {refusal.name for refusal in refused}
    found = [refs[0] for name, refs in candidates.items() if name not in taken]
    return InstalledPlugins(
        found=tuple(sorted(found, key=lambda ref: ref.name)),
        refused=tuple(sorted(refused, key=lambda refusal: (refusal.name, refusal.sources))),
    )


def _candidates(path: list[str]) -> Iterator[PluginRef | RefusedPlugin]:
    seen: set[str] = set()
    for dist in importlib_metadata.distributions(path=path):
        lines = _entry_lines(dist)
        if not lines:
            continue
        source = _Source.read(dist)
        if source.key not in seen:
            seen.add(source.key)
            yield from (source.candidate(line) for line in lines)


def _entry_lines(dist: Any) -> list[str]:
    """Return the entry-point lines of our group, empty if files are unreadable."""
    try:
        text = dist.read_text("entry_points.txt") or ""
    except (OSError, UnicodeDecodeError):
        return []
    return entry_lines(text, ENTRY_POINT_GROUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """A distribution that brings plugins. ``problem`` is why its metadata cannot be used."""

    name: str
    version: str
    location: str
    sdk_requirement: str | None = None
    problem: str | None = None

    @classmethod
    def read(cls, dist: Any) -> _Source:
        location = str(dist.locate_file(""))
        try:
            metadata = dist.metadata
            name, version = metadata["Name"], metadata["Version"]
            specifier = sdk_specifier(metadata.get_all("Requires-Dist") or [])
        except Exception as error:  # noqa: BLE001 - Metadata is foreign data; discovery never stops for it.
            problem = f"its metadata cannot be read ({type(error).__name__}: {error})"
            return cls(name="?", version="?", location=location, problem=problem)
        if not name or not version:
            problem = "its metadata has no name or no version"
            return cls(name=name or "?", version=version or "?", location=location, problem=problem)
        return cls(name=name, version=version, location=location, sdk_requirement=specifier)

    @property
    def key(self) -> str:
        """The identity of a source: its name, or its location without a name."""
        if self.problem is not None:
            return self.location
        return re.sub(r"[-_.]+", "-", self.name).lower()

    @property
    def text(self) -> str:
        return f"{self.name} {self.version} ({self.location})"

    def candidate(self, line: str) -> PluginRef | RefusedPlugin:
        name, equals, target = (part.strip() for part in line.partition("="))
        match = _TARGET.fullmatch(target)
        if self.problem is not None:
            return self._refuse(name, self.problem)
        if not equals or not name:
            return self._refuse(
                name or line, f"entry point {line!r} is not of the form name = module:attribute"
            )
        if match is None or not _are_identifiers(match["module"], match["attribute"]):
            return self._refuse(
                name,
                f"entry point value {target!r} is not of the form module:attribute, or "
                "package:file.sql with a file name of letters, digits and _",
            )
        return PluginRef(
            name=name,
            module=match["module"],
            attribute=match["attribute"],
            dist_name=self.name,
            dist_version=self.version,
            location=self.location,
            sdk_requirement=self.sdk_requirement,
        )

    def _refuse(self, name: str, reason: str) -> RefusedPlugin:
        return RefusedPlugin(name=name, reason=reason, sources=(self.text,))


def _are_identifiers(*dotted_names: str) -> bool:
    return all(part.isidentifier() for name in dotted_names for part in name.split("."))


def _conflict(refs: list[PluginRef]) -> RefusedPlugin:
    sources = tuple(sorted(f"{ref.dist} ({ref.location})" for ref in refs))
    return RefusedPlugin(
        name=refs[0].name,
        reason=f"{len(refs)} entry points have this name: {', '.join(sources)}",
        sources=sources,
    )


def _refusal_error(refusal: RefusedPlugin) -> BicycleError:
    return PLUGIN_REFUSED(
        name=refusal.name,
        reason=refusal.reason,
        sources=list(refusal.sources),
        source_text=" or ".join(refusal.sources),
    )
