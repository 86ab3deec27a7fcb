"""The former import path of ``bicycle_streams``, with all its modules; deprecated.

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

import bicycle_streams

_OLD, _NEW = f"{__name__}.", "bicycle_streams."


class _FormerPath(MetaPathFinder, Loader):
    """A finder that loads a module of the toolkit under its former name."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname.startswith(_OLD) else None

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        sys.modules[name] = importlib.import_module(_NEW + name.removeprefix(_OLD))


warnings.warn(
    "bicycle_runtime.streams is deprecated: import bicycle_streams",
    DeprecationWarning,
    stacklevel=2,
)
sys.meta_path.insert(0, _FormerPath())
sys.modules[__name__] = bicycle_streams
