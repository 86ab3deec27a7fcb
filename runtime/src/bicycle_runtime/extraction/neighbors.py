"""The neighbors of a job file: the modules of its folder that it needs.

The imports, and the modules of functions in SQL, are read off the text, and nothing is run. A
module brings the neighbors that it imports itself, and a package brings all its files. An import of
another kind (``importlib``) is not seen.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from bicycle_runtime.base.own_code import OWN_PACKAGES
from bicycle_runtime.extraction.errors import SCRIPT_UNUSABLE

_BYTES_MAX = 16 << 20
_FILES_MAX = 2_000
_KEPT_OUT = frozenset({*OWN_PACKAGES, "pyspark", "py4j", "msgspec"})
_IGNORED_SUFFIXES = (".pyc", ".pyo", ".so", ".pyd")
_SQL_MODULE = re.compile(r"\bFUNCTION\b[^;']*\bAS\s+'(\w+)[\w.]*:", re.IGNORECASE)


def find_neighbors(path: Path, content: str) -> Mapping[str, bytes]:
    """Return the files of a job file's folder that it needs, by relative path.

    Args:
        path: The job file.
        content: Its text.

    Raises:
        SCRIPT_UNUSABLE: they have more than 16 MiB, or are more than 2,000.
    """
    found: dict[str, bytes] = {}
    is_sql = path.suffix == ".sql"
    waiting = sorted({*_SQL_MODULE.findall(content)} if is_sql else _imports_of(content))
    seen = {path.stem}
    while waiting:
        name = waiting.pop()
        if name in seen or name in _KEPT_OUT or name in sys.stdlib_module_names:
            continue
        seen.add(name)
        for file in _files_of(path.parent, name):
            data = file.read_bytes()
            found[file.relative_to(path.parent).as_posix()] = data
            _check_size(path, name, found)
            if file.suffix == ".py":
                waiting += sorted(_imports_of(data))
    return found


def _imports_of(source: str | bytes) -> set[str]:
    """Return the top-level names that a source imports, empty for a syntax error."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # The import itself reports it, with the line.
        return set()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names.add(node.module.partition(".")[0])
    return names


def _files_of(folder: Path, name: str) -> Iterator[Path]:
    package, module = folder / name, folder / f"{name}.py"
    if package.is_dir() and (package / "__init__.py").is_file():
        yield from _files_in(package)
    elif module.is_file():
        yield module
    elif package.is_dir() and any(package.rglob("*.py")):
        yield from _files_in(package)


def _files_in(package: Path) -> Iterator[Path]:
    for file in sorted(package.rglob("*")):
        parts = file.relative_to(package).parts
        is_hidden = any(part.startswith(".") or part == "__pycache__" for part in parts)
        if file.is_file() and not is_hidden and file.suffix not in _IGNORED_SUFFIXES:
            yield file


def _check_size(path: Path, name: str, found: Mapping[str, bytes]) -> None:
    size = sum(map(len, found.values()))
    if size > _BYTES_MAX or len(found) > _FILES_MAX:
        raise SCRIPT_UNUSABLE(
            file=str(path),
            problem=(
                f"the modules of its folder that it imports (the last is {name}) are "
                f"{len(found):,} files of {size:,} bytes, more than a job file may include"
            ),
            hint="package the job as a wheel: `bicycle new NAME`",
        )
