"""A job of our own, tiny and whole, to try whether jobs can run here at all."""

from __future__ import annotations

import platform

import cloudpickle

from bicycle_runtime import __version__
from bicycle_runtime.extraction.bundle import JobBundle, bundle_digest
from bicycle_sdk import StreamEnvironment

__all__ = ["sample_bundle"]


def sample_bundle() -> JobBundle:
    """Return a job that counts three letters, with one exchange, and collects ``counts``."""
    environment = StreamEnvironment()
    letters = environment.from_collection(["a", "b", "a"])
    letters.key_by(_itself).count().collect("counts")
    graph = environment.build_graph("sample")
    payloads = {name: cloudpickle.dumps(value) for name, value in environment.payloads.items()}
    return JobBundle(
        graph=graph,
        payloads=payloads,
        shipping=dict.fromkeys(payloads, "by reference"),
        digest=bundle_digest(graph, payloads),
        plugin="sample",
        plugin_version=__version__,
        dist=f"bicycle-runtime {__version__}",
        sdk_version=__version__,
        python_version=platform.python_version(),
    )


def _itself(letter: str) -> str:
    return letter
