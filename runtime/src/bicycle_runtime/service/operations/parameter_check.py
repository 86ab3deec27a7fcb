"""Parameters of a plugin, checked before the start of its job is accepted.

The plugin is loaded in a child process, as its start does; its graph is not built. Whatever else is
wrong with the plugin is left to the start, which reports it with the log of the job.
"""

from __future__ import annotations

import dataclasses
import threading

from bicycle_runtime.extraction.child_process import ExtractionLimits
from bicycle_runtime.extraction.extract import check_plugin
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.options import JobRequest
from bicycle_runtime.jobs.plugins.environments import find_plugin
from bicycle_sdk.errors import BicycleError, ParameterError

__all__ = ["require_parameters"]

# Doors wait ten seconds for an answer.
_LIMITS = ExtractionLimits(wall_time_ms=6_000)
_TURN_S = 3.0
_turns = threading.BoundedSemaphore(2)


def require_parameters(request: JobRequest, home: Home) -> None:
    """Check the parameters of a request against its plugin, if that is quick enough.

    Raises:
        ParameterError: a parameter is unknown, missing or ill-typed.
    """
    if not _turns.acquire(timeout=_TURN_S):
        return  # Many starts at once: each finds out by itself.
    try:
        here = dataclasses.replace(request.options, master=None)
        check_plugin(find_plugin(here, home).ref, _LIMITS, params=request.params)
    except ParameterError:
        raise
    except (BicycleError, OSError):
        return
    finally:
        _turns.release()
