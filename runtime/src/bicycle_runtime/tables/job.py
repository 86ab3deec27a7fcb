"""An SQL file as a marked function for extraction.

The module is imported by the program of the job, on workers too; the parser is imported only when
the graph is built.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from types import ModuleType

from bicycle_runtime.tables.errors import SQL_LIBRARY_MISSING
from bicycle_sdk import StreamEnvironment, bicycle_plugin


def sql_job(
    text: str, *, file: str, of_plugins: bool = False
) -> Callable[[StreamEnvironment], None]:
    """Return the job of an SQL file.

    Args:
        text: The content of the file.
        file: Its name, for errors.
        of_plugins: Whether it may name functions of installed plugins only.
    """
    path = PurePath(file)

    @bicycle_plugin(name=path.stem if path.name != "*.sql" else path.parent.name or "views")
    def statements(env: StreamEnvironment) -> None:
        building_of(file).build_tables(env, text, file=file, of_plugins=of_plugins)

    return statements


def check_sql(text: str, *, file: str, of_plugins: bool = True) -> None:
    """Check an SQL file without building its job.

    Args:
        text: The content of the file.
        file: Its name, for errors.
        of_plugins: Whether it may name functions of installed plugins only.

    Raises:
        SQL_INVALID: with all problems of the file.
        SQL_LIBRARY_MISSING: the parser is not installed.
    """
    building_of(file).check_tables(text, file=file, of_plugins=of_plugins)


def building_of(file: str) -> ModuleType:
    """Return the module that imports the parser, which workers do not have."""
    try:
        from bicycle_runtime.tables import building  # An extra.
    except ModuleNotFoundError as error:
        missing = error.name or "a library"
        raise SQL_LIBRARY_MISSING(file=file, missing=missing) from error
    return building
