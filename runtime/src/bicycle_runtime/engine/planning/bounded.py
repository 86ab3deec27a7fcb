"""What batch mode asks of a job: that all of its input ends by itself."""

from __future__ import annotations

from bicycle_runtime.engine.errors import BATCH_MODE_ENDLESS
from bicycle_runtime.engine.planning.setup import JobSetup

__all__ = ["require_bounded"]


def require_bounded(setup: JobSetup) -> None:
    """Refuse a job with input that never ends; its sources were started.

    Raises:
        BATCH_MODE_ENDLESS: there are such sources; with all of them.
    """
    endless = [uid for uid, source in setup.sources.items() if not source.poll().is_bounded]
    if endless:
        words = [f"{uid!r} ({setup.sources[uid].spec.connector_type})" for uid in endless]
        raise BATCH_MODE_ENDLESS(job=setup.job_id, sources=endless, sources_text=", ".join(words))
