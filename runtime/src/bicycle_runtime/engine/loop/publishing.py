"""Publication of sealed epochs in order, while the next epoch may run.

Publishing epoch N must end before N+1 is sealed; ``finish`` waits for it. An error in a sink
surfaces there. Before each sink the lease is looked at: a driver that was replaced publishes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait

from bicycle_runtime.base.faults import fault_point
from bicycle_runtime.contract import Sink, StagedPublication
from bicycle_runtime.engine.planning.setup import JobSetup
from bicycle_runtime.engine.resuming.restoring import without_replaced
from bicycle_runtime.recovery.ledger import EpochLedger
from bicycle_runtime.recovery.manifest import Manifest

_REST_S = 1.0


def referenced_paths(setup: JobSetup, manifest: Manifest) -> set[str]:
    """Return the staged files that publishing an epoch, or a later one, still needs."""
    found: set[str] = set()
    states = without_replaced(manifest, setup.graph).sinks
    for uid, sink in setup.sinks.items():
        if uid in states and isinstance(sink, StagedPublication):
            found |= sink.referenced_paths(states[uid])
    return found


class Publisher:
    """Publishes epochs in a thread of its own, at most one at a time.

    Args:
        sinks: All sinks, by uid.
        ledger: Knows which epochs are published.
        rest: Called again and again while ``finish`` waits: keeps the programs of workers.
        told: Gets the epoch and the sink that begins to publish it, and None for the sink once all
            have. From any thread.
    """

    def __init__(
        self, sinks: Mapping[str, Sink], ledger: EpochLedger, *, rest: Callable[[], None],
        told: Callable[[int, str | None], None] = lambda *_: None,
    ) -> None:  # fmt: skip
        self._sinks = sinks
        self._ledger = ledger
        self._rest = rest
        self._told = told
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="publish")
        self._running: Future[None] | None = None

    def start(self, manifest: Manifest, then: Callable[[], None]) -> None:
        """Publish an epoch in the background, then call ``then`` there."""
        self._running = self._pool.submit(self._publish, manifest, then)

    def finish(self) -> None:
        """Wait for the running publication; raise its error on each call.

        So a request between two epochs does not keep the failure from the job.
        """
        if self._running is not None:
            while not wait([self._running], timeout=_REST_S).done:
                self._rest()
            self._running.result()
            self._running = None

    def look(self) -> None:
        """Raise the error of the last publication, if it has ended; never wait."""
        if self._running is not None and self._running.done():
            self.finish()

    def publish_again(self, manifest: Manifest) -> None:
        """Publish the last sealed epoch after a restart, which sinks make idempotent."""
        self._publish(manifest, lambda: None)

    def close(self) -> None:
        """Wait for the running publication, whatever its outcome, and end the thread."""
        self._pool.shutdown(wait=True)

    def _publish(self, manifest: Manifest, then: Callable[[], None]) -> None:
        fault_point("before_publish")
        for uid, sink in self._sinks.items():
            self._ledger.require_lease()
            self._told(manifest.epoch, uid)
            sink.publish(manifest.epoch, manifest.sinks.get(uid, {}))
            fault_point("half_published")
        fault_point("after_publish")
        self._told(manifest.epoch, None)
        self._ledger.mark_published(manifest.epoch)
        then()
