"""Routes and pages of the service, from Bicycle and from extensions.

An extension that cannot be loaded, or whose path is already used, is logged as
``extension_refused``; the service starts without its part.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from starlette.routing import compile_path

from bicycle_runtime.api.route import Route
from bicycle_runtime.api.routes import served_paths
from bicycle_runtime.base.extensions import (
    Extension,
    ExtensionRefusal,
    other_extensions,
    own_and_offered,
)
from bicycle_runtime.webui.rendering import SitePage
from bicycle_sdk.entry_points import load_object
from bicycle_sdk.logging import log_event

_LOG = logging.getLogger(__name__)
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
P = TypeVar("P", Route, SitePage)
_Taken = list[tuple[str, re.Pattern[str], str]]


def bicycle_routes() -> dict[str, str]:
    """Name our routes."""
    return {"api": "bicycle_runtime.api.routes:ROUTES"}


def bicycle_pages() -> dict[str, str]:
    """Name our pages."""
    return {"site": "bicycle_runtime.webui.site:PAGES"}


def load_routes_and_pages() -> tuple[tuple[Route, ...], tuple[SitePage, ...]]:
    """Return the routes and pages of this installation, and log refused extensions."""
    extensions, taken = other_extensions(), _Taken()
    routes, refused_routes = _parts(
        "bicycle_routes", bicycle_routes(), extensions, _reader(Route, served_paths, taken)
    )
    read_pages = _reader(SitePage, lambda page: [page.path], taken)
    pages, refused_pages = _parts("bicycle_pages", bicycle_pages(), extensions, read_pages)
    for refusal in dict.fromkeys([*refused_routes, *refused_pages]):
        log_event(
            _LOG, "extension_refused", level=logging.WARNING, extension=refusal.extension,
            reason=refusal.reason,
        )  # fmt: skip
    return routes, pages


def _parts(
    hook: str, own: Mapping[str, str], extensions: Iterable[Extension],
    read: Callable[[str, Any, Extension | None], tuple[P, ...]],
) -> tuple[tuple[P, ...], list[ExtensionRefusal]]:  # fmt: skip
    found, refusals = own_and_offered(hook, own, extensions, read)
    return tuple(part for parts in found.values() for part in parts), refusals


def _reader(
    kind: type[P], paths_of: Callable[[P], list[str]], taken: _Taken
) -> Callable[[str, Any, Extension | None], tuple[P, ...]]:
    """Return a function that loads and checks the routes or pages at a location."""

    def read(word: str, location: Any, extension: Extension | None) -> tuple[P, ...]:
        if not isinstance(location, str) or location.count(":") != 1:
            raise TypeError(f"{word!r}: location must be 'module:name', got {location!r}")
        parts = tuple(load_object(location))
        served = [_find_addresses(part, kind, paths_of, word) for part in parts]
        paths = [path for each in served for path in each]
        if extension is not None:
            for method, path in paths:
                _require_free(method, path, taken)
        taken.extend((method, compile_path(path)[0], path) for method, path in paths)
        return parts

    return read


def _find_addresses(
    part: Any, kind: type[P], paths_of: Callable[[P], list[str]], word: str
) -> list[tuple[str, str]]:
    """Return method and address of each path of a route or page."""
    if not isinstance(part, kind):
        raise TypeError(f"{word!r}: {part!r} is not a {kind.__name__}")
    if part.method not in _METHODS:
        raise ValueError(f"{word!r}: method must be one of {', '.join(_METHODS)}")
    if not part.path.startswith("/"):
        raise ValueError(f"{word!r}: path must start with '/', got {part.path!r}")
    return [(part.method, path) for path in paths_of(part)]


def _require_free(method: str, path: str, taken: _Taken) -> None:
    """Refuse a path that an earlier route would answer."""
    for known, pattern, owner in taken:
        if known == method and pattern.match(path):
            raise ValueError(f"{method} {path} is already used by {owner}")
