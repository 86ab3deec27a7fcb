"""The folder in which the Python workers of a host keep their last places, and how they ended."""

from __future__ import annotations

import tempfile

from bicycle_runtime.base.environment import chosen_variables

__all__ = ["FOLDER_VARIABLE", "local_folder", "positions_folder"]

FOLDER_VARIABLE = "BICYCLE_PLACES"
_LOCAL_DIRS = "SPARK_LOCAL_DIRS"  # Spark's own for each worker, removed when the executor ends.


def local_folder() -> str:
    """Return a folder that ends with the executor."""
    folders = chosen_variables([_LOCAL_DIRS]).get(_LOCAL_DIRS, tempfile.gettempdir())
    return folders.partition(",")[0]


def positions_folder() -> str:
    """Return the folder: as the driver chose it when it shares the machine, else Spark's own."""
    return chosen_variables([FOLDER_VARIABLE]).get(
        FOLDER_VARIABLE, f"{local_folder()}/bicycle-places"
    )
