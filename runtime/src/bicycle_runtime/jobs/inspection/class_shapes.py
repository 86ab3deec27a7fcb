"""How classes of a plugin look of which objects lie in state as pickles.

To look at them their modules are imported, which a child process does: run as
``python -m bicycle_runtime.jobs.inspection.class_shapes`` with the names on standard input as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection

from bicycle_runtime.jobs.child_processes import NoAnswerError, answer, ask_child
from bicycle_runtime.jobs.errors import INSPECTION_FAILED
from bicycle_runtime.state.values.pickled import shapes_here
from bicycle_runtime.state.values.schemas import Schema

__all__ = ["class_shapes", "main"]

_MODULE = "bicycle_runtime.jobs.inspection.class_shapes"
_TIMEOUT_S = 60


def class_shapes(names: Collection[str]) -> dict[str, Schema]:
    """Return how classes look, by name; those that are gone are left out.

    Raises:
        INSPECTION_FAILED: the child process gave no answer.
    """
    given = json.dumps(sorted(names)).encode()
    try:
        found: dict[str, Schema] = ask_child(_MODULE, given=given, timeout_s=_TIMEOUT_S)
    except NoAnswerError as error:
        raise INSPECTION_FAILED(plugin=", ".join(sorted(names)), detail=str(error)) from None
    return found


def main() -> int:
    """Answer one request."""
    return answer(lambda given: shapes_here(json.loads(given)))


if __name__ == "__main__":
    sys.exit(main())
