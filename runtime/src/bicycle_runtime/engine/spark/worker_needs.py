"""The requirements of a worker before it can read a job image."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bicycle_runtime.base.environment import chosen_variables

WORKER_MODULE = "bicycle_runtime.engine.spark.worker"  # Loads in a worker process.


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerNeeds:
    """The requirements of a worker process before it can read a job image.

    Args:
        archive: Name among Spark's files of the plugin's environment; empty without one.
        digest: Its digest.
        facts: Versions of the driver that this host must have; empty on the driver's own machine.
    """

    archive: str = ""
    digest: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)

    def meet(self) -> None:
        """Enter the environment.

        Raises:
            HANDSHAKE_FAILED: this host came after the handshake, and its versions differ.
        """
        import pyspark  # loaded in the process that runs this; not needed elsewhere

        if self.facts:
            # Needed on clusters only: reading metadata of distributions is slow to import.
            from bicycle_runtime.engine.hosts.handshake import HostAnswer, own_facts, require_match

            found = own_facts(spark=pyspark.__version__)
            require_match(self.facts, None, [HostAnswer(host=_host(), facts=found)])
        if self.archive:
            # Needed for packed environments only: zip files are slow to import.
            from bicycle_runtime.extraction.unpacking import enter_environment

            enter_environment(Path(pyspark.SparkFiles.get(self.archive)), self.digest)


NO_NEEDS = WorkerNeeds()


def _host() -> str:
    name = "SPARK_LOCAL_IP"
    return chosen_variables([name]).get(name) or platform.node()
