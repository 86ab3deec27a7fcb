"""PyFlink doing the same work: in processes beside Java (its default), or in threads within Java.

It is installed from the package index into an environment of its own, and runs in one local Java
process with as many subtasks as we have cores, checkpoints as often as our epochs are sealed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from functools import partial
from pathlib import Path

from bicycle_runs import CORES
from measuring import Table, run_program
from paces import Lap, best_settings
from peers import ORJSON, Peer

__all__ = ["FLINK_MODES", "PYFLINK", "best_bundle", "run_flink"]

# Flink's state access uses what setuptools brought until release 80.
PYFLINK = Peer(
    name="PyFlink 2.3.0", folder="flink",
    requirements=("apache-flink==2.3.0", "setuptools<80", ORJSON),
)  # fmt: skip
FLINK_MODES = {mode: f"{PYFLINK.name}, {mode} mode" for mode in ("process", "thread")}
CHECKPOINT_MS = 1_000  # as long as our epochs are
BUNDLES = (1_000, 10_000, 100_000)  # the last is its default
_PROGRAMS = Path(__file__).parent / "peer_programs"


def run_flink(
    program: str, source: Path, output: Path, *, mode: str, count: int, bundle: int = BUNDLES[-1],
    state: str = "hashmap", form: str = "",
) -> Lap:  # fmt: skip
    """Run a program; its time begins with the first record that Python sees.

    Args:
        program: Module in ``peer_programs``.
        source: Folder with the input.
        output: Folder for the output.
        mode: process or thread.
        count: Records of the input.
        bundle: Records that go to Python at once, at most.
        state: hashmap or rocksdb.
        form: What the program does, where it can do several things.

    Raises:
        PeerMissingError: it cannot be installed here.
    """
    python = PYFLINK.python()
    place = output.parent
    settings = {
        "mode": mode, "bundle": bundle, "state": state, "parallelism": CORES,
        "checkpoint_ms": CHECKPOINT_MS, "checkpoints": str(place / "checkpoints"),
        "times": str(place / "times"), "form": form,
    }  # fmt: skip
    (place / "times").mkdir()
    (place / "logs").mkdir()
    began = time.monotonic()
    told = run_program(
        [python, _PROGRAMS / f"{program}.py", source, output, json.dumps(settings)],
        FLINK_LOG_DIR=str(place / "logs"), PYTHONPATH=f"{_PROGRAMS}{os.pathsep}{_packages(python)}",
    )  # fmt: skip
    ended = json.loads(told.splitlines()[-1])["ended"]
    notes = [float(file.read_text()) for file in (place / "times").iterdir()]
    return Lap(count=count, seconds=ended - min(notes), startup_s=min(notes) - began)


def _packages(python: Path) -> Path:
    """Return the packages of an environment: Python within Java does not know the environment."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return python.parents[1] / "lib" / version / "site-packages"


def best_bundle(title: str, unit: str, run: partial[Lap]) -> tuple[Table, int]:
    """Try how many records are best in a bundle; return the table and the number.

    Args:
        title: What is tried, on which input.
        unit: What is counted.
        run: Takes ``bundle``.
    """
    forms = {f"{bundle:,} in a bundle": partial(run, bundle=bundle) for bundle in BUNDLES}
    table, best = best_settings(title, unit, forms)
    return table, BUNDLES[list(forms).index(best)]
