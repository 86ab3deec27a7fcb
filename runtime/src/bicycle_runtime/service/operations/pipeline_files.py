"""Jobs in one file that were sent to the service, which stores them by content.

A job is Python, a pipeline or SQL, and reads its file at each start. Files are small, and are
removed when the service starts and no job is left that was started with them.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Collection
from pathlib import Path

import msgspec

from bicycle_runtime.base.files import own_folder, replace_file
from bicycle_runtime.jobs.home import UNREADABLE, Home
from bicycle_runtime.jobs.plugins.pipeline_checks import check_in_child
from bicycle_runtime.service.address import service_folder
from bicycle_runtime.service.errors import OPERATION_FACTS_INVALID

_NAME = re.compile(r"(?=.{1,100}\Z)[A-Za-z0-9][A-Za-z0-9._-]*\.(toml|ya?ml|sql|py(:\w+)?)")
_FOLDER = "pipelines"


class PipelineFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The name of a ``file``, or ``FILE.py:FUNCTION``, and its ``text``."""

    file: str
    text: str


def keep_pipeline(home: Home, pipeline: PipelineFile) -> Path:
    """Check a job, store it, and return the name by which it is started.

    Raises:
        OPERATION_FACTS_INVALID: the name is not the name of a Python, TOML, YAML or SQL file.
        BicycleError: as ``check_in_child``.
    """
    if not _NAME.fullmatch(pipeline.file):
        raise OPERATION_FACTS_INVALID(
            kind="submit", problem=f"invalid file name of the pipeline: {pipeline.file[:100]!r}",
            hint="use a file name that ends in .py, .toml, .yaml, .yml or .sql, without a folder",
        )  # fmt: skip
    check_in_child(pipeline.text, file=pipeline.file)
    content = pipeline.text.encode()
    folder = service_folder(home) / _FOLDER / hashlib.sha256(content).hexdigest()
    own_folder(folder)
    replace_file(folder / pipeline.file.partition(":")[0], content)
    return folder / pipeline.file


def clear_pipelines(home: Home, *, waiting: Collection[str]) -> None:
    """Remove pipelines without a job; ``waiting`` are paths of files in use.

    If a request cannot be read, its pipeline is unknown, and no pipeline is removed.
    """
    needed = {Path(path).parent for path in waiting}
    for job in home.folders():
        try:
            needed.add(Path(job.read_request().options.plugin).parent)
        except FileNotFoundError:
            continue
        except UNREADABLE:
            return
    for folder in (service_folder(home) / _FOLDER).glob("*"):
        if folder not in needed:
            shutil.rmtree(folder, ignore_errors=True)
