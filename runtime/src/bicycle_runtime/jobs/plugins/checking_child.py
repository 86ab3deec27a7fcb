"""The program that checks one pipeline or SQL file for ``pipeline_checks``."""

from __future__ import annotations

import resource
import sys
from typing import Any

from bicycle_runtime.base.pipes import answer_once
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
        if (notation := notation_of(file)) is None:
            check_sql(text, file=file)
        else:
            check_pipeline(read_document(text, file=file, notation=notation))
    except BicycleError as error:
        return {"error": error.to_json()}
    return {"error": None}


if __name__ == "__main__":
    sys.exit(answer_once(sys.argv[1], _check))
