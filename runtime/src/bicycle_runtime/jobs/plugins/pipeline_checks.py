"""The check of a job in one file in a process with limited resources.

A file may be small and yet costly to check. A program that answers other requests meanwhile, such
as the service, checks a file here: the processor time and the memory of the process are bounded.
"""

from __future__ import annotations

from bicycle_runtime.base.children import NoAnswerError, ask_child
from bicycle_runtime.base.errors import error_from_json
from bicycle_runtime.pipelines.errors import PIPELINE_TOO_COSTLY

_PROCESSOR_S = 10
_WALL_S = 60.0
_MEMORY_BYTES = 2 << 30
_PROGRAM = "bicycle_runtime.jobs.plugins.checking_child"


def check_in_child(text: str, *, file: str) -> None:
    """Check SQL, the syntax of Python, or a pipeline except for its functions.

    Args:
        text: The content of the file.
        file: Its name, whose suffix is the notation, or ``FILE.py:FUNCTION``.

    Raises:
        PIPELINE_UNREADABLE: it is no TOML, or no YAML.
        PIPELINE_INVALID: with the errors of the pipeline.
        SQL_INVALID: with the errors of the SQL file.
        SCRIPT_UNUSABLE: it is not Python, or it is not clear which function is the job.
        PIPELINE_TOO_COSTLY: the check took too much time or memory.
    """
    question = {"text": text, "file": file, "cpu_s": _PROCESSOR_S, "memory": _MEMORY_BYTES}
    try:
        found = ask_child(_PROGRAM, question=question, timeout_s=_WALL_S)["error"]
    except NoAnswerError as error:
        reason = (
            f"it used more than {_PROCESSOR_S} s of CPU time or {_MEMORY_BYTES >> 30} GiB of "
            f"memory ({error})"
        )
        raise PIPELINE_TOO_COSTLY(file=file, reason=reason) from error
    if found is not None:
        raise error_from_json(found)
