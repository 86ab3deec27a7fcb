"""Every module of the SDK and the runtime, imported: what tests that walk classes start from."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from types import ModuleType

import bicycle_runtime
import bicycle_sdk
from bicycle_sdk.errors import BicycleError


def import_all() -> list[ModuleType]:
    """Import every module; one that can not be imported fails the test that asked."""

    def refuse(name: str) -> None:
        raise ImportError(f"{name} can not be imported")

    names = [
        name
        for package in (bicycle_sdk, bicycle_runtime)
        for name in [package.__name__, *_names_below(package, onerror=refuse)]
    ]
    return [importlib.import_module(name) for name in names if not name.endswith("__main__")]


def _names_below(package: ModuleType, *, onerror: Callable[[str], None]) -> list[str]:
    prefix = f"{package.__name__}."
    found = pkgutil.walk_packages(package.__path__, prefix=prefix, onerror=onerror)
    return [info.name for info in found]


def error_classes() -> list[type[BicycleError]]:
    """Return every error class of the SDK and the runtime, by code."""
    import_all()
    ours = ("bicycle_sdk", "bicycle_runtime")
    found = {cls for cls in _descendants(BicycleError) if cls.__module__.startswith(ours)}
    return sorted(found, key=lambda cls: cls.code)


def _descendants(cls: type[BicycleError]) -> Iterator[type[BicycleError]]:
    for child in cls.__subclasses__():
        yield child
        yield from _descendants(child)
