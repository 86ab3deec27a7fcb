"""The check of a pipeline in a process with limited processor time and memory.

A file may be small and yet costly to check. A program that answers other requests meanwhile, such
as the service, checks a file here: the processor time and the memory of the process are bounded.
"""

from __future__ import annotations

import resource
import sys
from typing import Any

from bicycle_runtime.base.children import NoAnswerError, ask_child
from bicycle_runtime.base.errors import error_from_json
from bicycle_runtime.base.pipes import answer_once
from bicycle_runtime.pipelines.documents import Notation, read_document
from bicycle_runtime.pipelines.errors import PIPELINE_TOO_COSTLY
from bicycle_runtime.pipelines.nodes import check_pipeline
from bicycle_sdk.errors import BicycleError

_PROCESSOR_S = 10
_WALL_S = 60.0
_MEMORY_BYTES = 2 << 30
_MODULE = "bicycle_runtime.jobs.plugins.pipeline_checks"


def check_in_child(text: str, *, file: str, notation: Notation) -> None:
    """Check a pipeline, except for the functions that it names.

    Args:
        text: The pipeline.
        file: Its name, for errors.
        notation: How it is written.

    Raises:
        PIPELINE_UNREADABLE: it is no TOML, or no YAML.
        PIPELINE_INVALID: with its errors.
        PIPELINE_TOO_COSTLY: the check took too much time or memory.
    """
    question = {"text": text, "file": file, "notation": notation}
    try:
        found = ask_child(_MODULE, question=question, timeout_s=_WALL_S)["error"]
    except NoAnswerError as error:
        reason = (
            f"it used more than {_PROCESSOR_S} s of CPU time or {_MEMORY_BYTES >> 30} GiB of "
            f"memory ({error})"
        )
        raise PIPELINE_TOO_COSTLY(file=file, reason=reason) from error
    if found is not None:
        raise error_from_json(found)


def main(arguments: list[str]) -> int:
    """Answer one question: with None for a good pipeline, else its error."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (_PROCESSOR_S, hard))
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
    return answer_once(arguments[0], _check)


def _check(given: dict[str, Any], _blobs: list[bytes]) -> dict[str, Any]:
    try:
        document = read_document(given["text"], file=given["file"], notation=given["notation"])
        check_pipeline(document)
    except BicycleError as error:
        return {"error": error.to_json()}
    return {"error": None}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
