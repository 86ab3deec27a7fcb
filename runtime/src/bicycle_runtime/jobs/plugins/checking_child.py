"""The program that checks a job in one file for ``pipeline_checks``."""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from typing import Any

from bicycle_runtime.base.pipes import answer_once
from bicycle_runtime.extraction.scripts import job_in
from bicycle_runtime.pipelines.documents import notation_of, read_document
from bicycle_runtime.pipelines.nodes import check_pipeline
from bicycle_runtime.tables.job import check_sql
from bicycle_sdk.errors import BicycleError


def _check(given: dict[str, Any], _blobs: list[bytes]) -> dict[str, Any]:
    """Answer with None for a good file, else with its error."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (given["cpu_s"], hard))
    resource.setrlimit(resource.RLIMIT_DATA, (given["memory"], given["memory"]))
    text, file = given["text"], given["file"]
    try:
        name, _, function = file.partition(":")
        if (notation := notation_of(file)) is not None:
            check_pipeline(read_document(text, file=file, notation=notation))
        elif name.endswith(".py"):
            job_in(Path(name), text, function)
        else:
            check_sql(text, file=file)
    except BicycleError as error:
        return {"error": error.to_json()}
    return {"error": None}


if __name__ == "__main__":
    sys.exit(answer_once(sys.argv[1], _check))
