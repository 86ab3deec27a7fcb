"""An SQL file as a marked function for extraction.

The module is imported by the program of the job, on workers too; the parser is imported only when
the graph is built.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath

from bicycle_runtime.tables.errors import SQL_LIBRARY_MISSING
from bicycle_sdk import StreamEnvironment, bicycle_plugin


def sql_job(text: str, *, file: str) -> Callable[[StreamEnvironment], None]:
    """Return the job of an SQL file.

    Args:
        text: The content of the file.
        file: Its name, for errors.
    """

    @bicycle_plugin(name=PurePath(file).stem)
    def statements(env: StreamEnvironment) -> None:
        try:
            # An extra, and slow to import: only the process that builds the graph needs it.
            from bicycle_runtime.tables.building import build_tables
        except ModuleNotFoundError as error:
            missing = error.name or "a library"
            raise SQL_LIBRARY_MISSING(file=file, missing=missing) from error
        build_tables(env, text, file=file)

    return statements
