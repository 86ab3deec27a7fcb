"""The folders of positions, ends and stacks of a host's Python workers."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from bicycle_runtime.base.environment import chosen_variables
from bicycle_runtime.base.stacks import STACKS_VARIABLE
from bicycle_runtime.engine.spark.early_daemon import FOLDER_VARIABLE

_LOCAL_DIRS = "SPARK_LOCAL_DIRS"  # Spark's own for each worker, removed when the executor ends.


def local_folder() -> str:
    """Return a folder that ends with the executor."""
    folders = chosen_variables([_LOCAL_DIRS]).get(_LOCAL_DIRS, tempfile.gettempdir())
    return folders.partition(",")[0]


def positions_folder() -> str:
    """Return the folder: the driver's choice on a common machine, else Spark's own."""
    return chosen_variables([FOLDER_VARIABLE]).get(
        FOLDER_VARIABLE, f"{local_folder()}/bicycle-places"
    )


def stacks_folder() -> str:
    """Return the folder of stacks: as chosen by the driver, else Spark's own."""
    return chosen_variables([STACKS_VARIABLE]).get(
        STACKS_VARIABLE, f"{local_folder()}/bicycle-stacks"
    )


def noted_count(folder: Path) -> int:
    """Return how many ends of workers are noted in a folder."""
    # hot path: once per epoch; a folder of four workers costs 10 µs.
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        return sum("." in entry.name for entry in entries)
    return 0
