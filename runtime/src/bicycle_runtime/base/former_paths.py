"""Former import paths of modules that moved to the toolkit; deprecated.

Each module is the same object under both names, so classes and stored values agree.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _FormerPath(MetaPathFinder, Loader):
    """A finder that loads the modules of a package under its former name."""

    def __init__(self, old: str, new: str) -> None:
        self._old, self._new = f"{old}.", f"{new}."

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002  # the contract
        target: ModuleType | None = None,  # noqa: ARG002  # the contract
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname.startswith(self._old) else None

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        sys.modules[name] = importlib.import_module(self._new + name.removeprefix(self._old))


def forward(old: str, new: str) -> None:
    """Make a module that is imported under its former name the moved one, and warn.

    Args:
        old: The name of the calling module.
        new: The name of the package that replaces it.
    """
    warnings.warn(f"{old} is deprecated: import {new}", DeprecationWarning, stacklevel=3)
    sys.meta_path.insert(0, _FormerPath(old, new))
    sys.modules[old] = importlib.import_module(new)
