"""Tests of whole jobs: in this process, without a JVM or a broker.

``Harness`` runs a job graph with scripted input and a clock that is moved by hand; ``preview``
shows the first records of a stream; ``Runner`` writes a test as one job, one script in, one list
out. Everything between input and output is the same as on Spark: stage plan, operators, exchange,
state files, manifests. Only Spark's scheduling is missing.
"""

from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.testing.bundling import bundle_of
from bicycle_runtime.testing.errors import HarnessError
from bicycle_runtime.testing.harness import Harness, Snapshot
from bicycle_runtime.testing.previews import preview
from bicycle_runtime.testing.runner import Finished, Runner
from bicycle_runtime.testing.script import CRASH, END, EPOCH, Mark, script_source

__all__ = [
    "CRASH",
    "END",
    "EPOCH",
    "EngineOptions",
    "Finished",
    "Harness",
    "HarnessError",
    "Mark",
    "Runner",
    "Snapshot",
    "bundle_of",
    "preview",
    "script_source",
]
