"""Resources whose jobs run on real Spark, beside a real service."""

import asyncio
from pathlib import Path

from tests.operator.kubernetes import world_of
from tests.unit.jobs.upgrading.versions import Site, plugin_wheel
from tests.unit.service_process.served import Served
from tests.unit.service_process.test_uploads import upload

JOB = "shop.clicks"
VERSIONS = {"1.0": "return line", "2.0": "raise ValueError(line)", "3.0": "return line"}


def upload_versions(served, folder):
    for version, body in VERSIONS.items():
        wheel = plugin_wheel(folder, version, body=body)
        assert upload(served, Path(wheel))[0] == 201


class Life:
    """A resource whose job counts words, from its creation to its deletion."""

    def __init__(self, world, site):
        self.world, self.site = world, site

    @property
    def job(self):
        """The status that the driver wrote last."""
        return self.site.home.folder(JOB).status()

    @property
    def status(self):
        return (self.world.found() or {}).get("status", {})

    async def create(self, **options):
        params = {"input": str(self.site.input), "output": str(self.site.output)}
        await self.world.create(
            plugin="demo", version="1.0", parallelism=2, params=params,
            options={"follow": True, "master": "local[2]", "restart_attempts": 0, **options},
            upgrade={"epochs": 1, "watch_ms": 2_000, "skip_savepoint": True},
        )  # fmt: skip
        await self.until(phase="RUNNING", version="1.0", parallelism=2)

    async def until(self, reason="Applied", **fields):
        def is_reached():
            return self.world.reason() == reason and fields.items() <= self.status.items()

        await self.world.until(is_reached, f"{reason} {fields}")

    async def change(self, **spec):
        await self.world.change(**spec)

    async def count(self, *lines):
        before = self.job.event_count
        self.site.feed(*lines)
        await self.world.until(lambda: self.job.event_count >= before + len(lines), "words")

    async def fail_upgrade(self):
        """Upgrade to a version that fails on the next line, and wait for the rollback."""
        patience = {"epochs": 1_000, "watch_ms": 60_000, "skip_savepoint": True}
        await self.world.change(version="2.0", upgrade=patience)
        await self.world.until(
            lambda: self.job is not None and self.job.plugin_version == "2.0", "the new version",
        )  # fmt: skip
        self.site.feed("eve")
        await self.until("OperationFailed", phase="RUNNING", version="1.0")
        [message] = [c["message"] for c in self.status["conditions"] if c["type"] == "Synced"]
        assert message.startswith("upgrade: BIC-")
        await self.world.change(version="1.0")
        await self.until(phase="RUNNING", version="1.0")

    async def delete(self):
        await self.world.delete()
        await self.world.until(lambda: self.world.found() is None, "end")


def site_of(tmp_path, spark_cache, monkeypatch):
    """Return a folder for a job on Spark whose Java lives for seconds."""
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    site = Site(tmp_path)
    (site.home.path / "cache").symlink_to(spark_cache)
    return site


def lived(scenario, site, *, world_at=world_of):
    """Run a scenario beside a service; return its kinds of operations, final state and words.

    Args:
        scenario: Takes a life, while an operator runs.
        site: The folder of the job.
        world_at: The cluster beside the service of a URL.
    """
    served = Served(site.home.path).start()

    async def run():
        async with world_at(served.url) as world, world.operator():
            await scenario(Life(world, site))

    try:
        upload_versions(served, site.root / "wheels")
        asyncio.run(run())
        operations = served.get(f"/api/v1/operations?job={JOB}&limit=500")["items"]
    finally:
        served.ask("POST", f"/api/v1/jobs/{JOB}/cancel")
        served.end()
    kinds = [(each["kind"], each["state"]) for each in reversed(operations)]
    rows = sorted((row["word"], row["count"]) for row in site.rows())
    return kinds, site.home.folder(JOB).status().state.value, rows


def shown(site):
    return {row["word"] for row in site.rows()}
