"""A test whether a worker can import a module, by the original import path.

A plugin that changes ``sys.path`` while its graph is built can import things which no worker will
find; a function from there must not be shipped by reference. This module imports nothing itself.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path


class ImportSearch:
    """The import path of one moment. Make it before user code runs, ask it afterwards."""

    def __init__(self) -> None:
        self._path = list(sys.path)
        self._finders = list(sys.meta_path)
        self._answers: dict[str, str | None] = {}

    def problem(self, module_name: str) -> str | None:
        """Return why a worker cannot import the module, or None when it can."""
        top = module_name.partition(".")[0]
        if top not in self._answers:
            self._answers[top] = self._judge(top)
        return self._answers[top]

    def shorten(self, file: str) -> str:
        """Return a source file relative to the entry of the import path that holds it.

        Python finds the source lines of such a relative name on every machine that has the module.
        """
        folders = [entry for entry in self._path if file.startswith(entry.rstrip("/") + "/")]
        return os.path.relpath(file, max(folders, key=len)) if folders else file

    def _judge(self, top: str) -> str | None:
        if top == "__main__":
            return "it is defined in __main__, which does not exist on workers"
        spec = self._find(top)
        if spec is None:
            return f"its module {top!r} is not on the import path of the environment"
        module = sys.modules.get(top)
        used = getattr(getattr(module, "__spec__", None), "origin", None)
        if spec.origin and used and not _is_same_file(spec.origin, used):
            return (
                f"its module {top!r} was loaded from {used}, but workers would load {spec.origin}"
            )
        return None

    def _find(self, top: str) -> ModuleSpec | None:
        changed, sys.path = sys.path, list(self._path)
        try:
            specs = (finder.find_spec(top, None) for finder in self._finders)
            return next((spec for spec in specs if spec is not None), None)
        finally:
            sys.path = changed


def _is_same_file(left: str, right: str) -> bool:
    return left == right or Path(left).resolve() == Path(right).resolve()
