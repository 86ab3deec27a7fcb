"""Pipelines sent to the service: stored by content, as long as they are needed.

A job reads its pipeline at each start. Files are small, and are removed when the service starts and
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
from bicycle_runtime.pipelines.documents import notation_of
from bicycle_runtime.service.address import service_folder
from bicycle_runtime.service.errors import OPERATION_FACTS_INVALID

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_FOLDER = "pipelines"


class PipelineFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pipeline: its ``file`` name, whose suffix is the notation, and its ``text``."""

    file: str
    text: str


def keep_pipeline(home: Home, pipeline: PipelineFile) -> Path:
    """Check a pipeline, keep it, and return the path of its file.

    Raises:
        OPERATION_FACTS_INVALID: the name is not the name of a TOML or YAML file.
        PIPELINE_UNREADABLE: the text is not valid TOML or YAML.
        PIPELINE_INVALID: the pipeline has errors; its functions are not checked here.
        PIPELINE_TOO_COSTLY: its check takes too much time or memory.
    """
    notation = notation_of(pipeline.file)
    if notation is None or not _NAME.fullmatch(pipeline.file):
        raise OPERATION_FACTS_INVALID(
            kind="submit", problem=f"invalid file name of the pipeline: {pipeline.file[:100]!r}",
            hint="use a file name that ends in .toml, .yaml or .yml, without a folder",
        )  # fmt: skip
    check_in_child(pipeline.text, file=pipeline.file, notation=notation)
    content = pipeline.text.encode()
    folder = service_folder(home) / _FOLDER / hashlib.sha256(content).hexdigest()
    own_folder(folder)
    path = folder / pipeline.file
    replace_file(path, content)
    return path


def clear_pipelines(home: Home, *, waiting: Collection[str]) -> None:
    """Remove pipelines without a job; ``waiting`` are paths of files in use."""
    needed = {Path(path) for path in waiting}
    for folder in home.folders():
        if folder.request_path.exists():
            needed.add(Path(folder.read_request().options.plugin))
    for path in (service_folder(home) / _FOLDER).glob("*/*"):
        if path not in needed:
            path.unlink(missing_ok=True)
    for path in (service_folder(home) / _FOLDER).glob("*"):
        if not any(path.iterdir()):
            shutil.rmtree(path, ignore_errors=True)
