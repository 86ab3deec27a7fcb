"""A guard that refuses imports from outside of a plugin's own environment.

A plugin of its own environment (``--plugin-env``) shares its processes with the runtime, whose
libraries are on the import path, too. One that the plugin does not declare would be found there, in
whatever version the runtime has, and be missing on another host. So a top-level import by code of
the environment finds the standard library, the environment, and what the runtime holds for both.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import FrameType, ModuleType

from bicycle_runtime.base.own_code import OWN_PACKAGES

ISOLATED = ".isolated"  # This file marks an environment that contains all its requirements.
_HELD = frozenset({*OWN_PACKAGES, "pyspark", "py4j", "msgspec", "cloudpickle"})
_IMPORTING = ("<frozen importlib", "importlib/__init__.py")


class UndeclaredLibraryError(ModuleNotFoundError):
    """Code of an environment imports a library that only the runtime has."""


def guard_imports(folder: Path) -> None:
    """Refuse imports of undeclared libraries by code of an isolated environment.

    Args:
        folder: Where the environment is unpacked; it is on the import path.
    """
    is_guarded = any(isinstance(each, _Guard) and each.folder == folder for each in sys.meta_path)
    if not is_guarded and (folder / ISOLATED).is_file():
        sys.meta_path.insert(0, _Guard(folder))


class _Guard:
    """A finder that raises for imports that the environment's code may not make."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._prefix = f"{folder}/"

    def find_spec(
        self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return None, so that other finders look.

        Raises:
            UndeclaredLibraryError: code of the environment imports a library that it does not have.
        """
        if "." in name or name in _HELD or name in sys.stdlib_module_names:
            return None
        if not _importer(sys._getframe(1)).startswith(self._prefix):
            return None
        if PathFinder.find_spec(name, [str(self.folder)]) is not None:
            return None
        elsewhere = PathFinder.find_spec(name)
        if elsewhere is None:
            return None
        raise UndeclaredLibraryError(
            f"No module named {name!r} among the declared dependencies of the plugin; only the "
            "environment of the runtime contains it",
            name=name,
        )


def _importer(frame: FrameType | None) -> str:
    """Return the file of the code that imports, empty when it is unknown."""
    while frame is not None:
        file = frame.f_code.co_filename
        if not any(each in file for each in _IMPORTING):
            return file
        frame = frame.f_back
    return ""
