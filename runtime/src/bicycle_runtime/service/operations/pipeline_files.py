"""Pipelines and SQL files sent to the service, which stores them by content.

A job reads its file at each start. Files are small, and are removed when the service starts and
no job is left that was started with them.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Collection
from pathlib import Path

import msgspec

from bicycle_runtime.base.files import own_folder, replace_file
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.plugins.pipeline_checks import check_in_child
from bicycle_runtime.service.address import service_folder
from bicycle_runtime.service.errors import OPERATION_FACTS_INVALID

_NAME = re.compile(r"(?=.{1,100}\Z)[A-Za-z0-9][A-Za-z0-9._-]*\.(toml|ya?ml|sql)")
_FOLDER = "pipelines"


class PipelineFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The ``file`` name, whose suffix is the notation, and the ``text`` of a file."""

    file: str
    text: str


def keep_pipeline(home: Home, pipeline: PipelineFile) -> Path:
    """Check a pipeline, keep it, and return the path of its file.

    Raises:
        OPERATION_FACTS_INVALID: the name is not the name of a TOML, YAML or SQL file.
        PIPELINE_UNREADABLE: the text is not valid TOML or YAML.
        PIPELINE_INVALID: the pipeline has errors; its functions are not checked here.
        SQL_INVALID: the SQL file has errors.
        PIPELINE_TOO_COSTLY: its check takes too much time or memory.
    """
    if not _NAME.fullmatch(pipeline.file):
        raise OPERATION_FACTS_INVALID(
            kind="submit", problem=f"invalid file name of the pipeline: {pipeline.file[:100]!r}",
            hint="use a file name that ends in .toml, .yaml, .yml or .sql, without a folder",
        )  # fmt: skip
    check_in_child(pipeline.text, file=pipeline.file)
    content = pipeline.text.encode()
    folder = service_folder(home) / _FOLDER / hashlib.sha256(content).hexdigest()
    own_folder(folder)
    path = folder / pipeline.file
    replace_file(path, content)
    return path


def clear_pipelines(home: Home, *, waiting: Collection[str]) -> None:
    """Remove pipelines without a job; ``waiting`` are paths of files in use."""
    needed = {Path(path) for path in waiting}
    for job in home.folders():
        if job.request_path.exists():
            needed.add(Path(job.read_request().options.plugin))
    for folder in (service_folder(home) / _FOLDER).glob("*"):
        if needed.isdisjoint(folder.iterdir()):
            shutil.rmtree(folder, ignore_errors=True)
