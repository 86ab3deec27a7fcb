"""The operator beside a real service and real Spark: each change of a resource."""

import asyncio
from pathlib import Path

import pytest

from tests.operator.kubernetes import world_of
from tests.unit.jobs.upgrading.versions import Site, plugin_wheel
from tests.unit.service_process.served import Served
from tests.unit.service_process.test_uploads import upload

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

JOB = "shop.clicks"
PATIENCE_S = 180


def upload_versions(served, folder):
    for version, body in (("1.0", "return line"), ("2.0", "raise ValueError(line)")):
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

    async def create(self):
        params = {"input": str(self.site.input), "output": str(self.site.output)}
        await self.world.create(
            plugin="demo", version="1.0", parallelism=2, params=params,
            options={"follow": True, "master": "local[2]", "restart_attempts": 0},
            upgrade={"epochs": 1, "watch_ms": 2_000, "skip_savepoint": True},
        )  # fmt: skip
        await self.until(phase="RUNNING", version="1.0", parallelism=2)

    async def until(self, reason="Applied", **fields):
        def is_reached():
            return self.world.reason() == reason and fields.items() <= self.status.items()

        await self.world.until(is_reached, f"{reason} {fields}", patience_s=PATIENCE_S)

    async def change(self, **spec):
        await self.world.change(**spec)

    async def count(self, *lines):
        before = self.job.event_count
        self.site.feed(*lines)
        await self.world.until(
            lambda: self.job.event_count >= before + len(lines), "words", patience_s=PATIENCE_S
        )

    async def delete(self):
        await self.world.delete()
        await self.world.until(lambda: self.world.found() is None, "end", patience_s=PATIENCE_S)


def lived(scenario, tmp_path, spark_cache, monkeypatch):
    """Run a scenario beside a service; return its kinds of operations, final state and words."""
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    site = Site(tmp_path)
    (site.home.path / "cache").symlink_to(spark_cache)
    served = Served(site.home.path).start()

    async def run():
        async with world_of(served.url) as world, world.operator():
            await scenario(Life(world, site))

    try:
        upload_versions(served, tmp_path / "wheels")
        asyncio.run(run())
        operations = served.get(f"/api/v1/operations?job={JOB}")["items"]
    finally:
        served.ask("POST", f"/api/v1/jobs/{JOB}/cancel")
        served.end()
    kinds = [(each["kind"], each["state"]) for each in reversed(operations)]
    rows = sorted((row["word"], row["count"]) for row in site.rows())
    return kinds, site.home.folder(JOB).status().state.value, rows


def test_a_real_job_is_scaled_saved_suspended_and_ended_by_its_resource(
    tmp_path, spark_cache, monkeypatch
):
    async def scenario(life):
        await life.create()
        await life.count("ada", "bob")
        started_ms = life.job.started_ms
        await life.change(parallelism=1)
        await life.until(phase="RUNNING", parallelism=1)
        assert life.job.started_ms == started_ms  # It did not restart.
        await life.world.save("first")
        await life.world.until(
            lambda: "url" in life.world.savepoint("first"), "the savepoint", patience_s=PATIENCE_S
        )
        await life.count("ada")
        await life.change(suspend=True)
        await life.until(phase="PAUSED")
        assert life.status["lastSavepoint"]["url"] == life.world.savepoint("first")["url"]
        await life.change(suspend=False)
        await life.until(phase="RUNNING")
        await life.count("zoe")
        await life.delete()

    kinds, state, rows = lived(scenario, tmp_path, spark_cache, monkeypatch)

    assert kinds == [
        (kind, "done")
        for kind in ("submit", "rescale", "savepoint", "pause", "submit", "suspend")
    ]  # fmt: skip
    assert state == "SUSPENDED"
    assert rows == [("ada", 1), ("ada", 2), ("bob", 1), ("zoe", 1)]


def test_an_upgrade_that_fails_on_real_data_is_rolled_back_and_reported(
    tmp_path, spark_cache, monkeypatch
):
    async def scenario(life):
        await life.create()
        await life.count("ada")
        patience = {"epochs": 1_000, "watch_ms": 60_000, "skip_savepoint": True}
        await life.change(version="2.0", deletionPolicy="Cancel", upgrade=patience)
        await life.world.until(
            lambda: life.job is not None and life.job.plugin_version == "2.0", "the new version",
            patience_s=PATIENCE_S,
        )  # fmt: skip
        life.site.feed("eve")
        await life.until("OperationFailed", phase="RUNNING", version="1.0")
        [message] = [c["message"] for c in life.status["conditions"] if c["type"] == "Synced"]
        assert message.startswith("upgrade: BIC-")
        await life.change(version="1.0")
        await life.until(phase="RUNNING", version="1.0")
        await life.world.create("unknown", plugin="nothing")
        await life.world.until(
            lambda: life.world.reason(name="unknown") in ("Rejected", "OperationFailed"),
            "the rejection", patience_s=PATIENCE_S,
        )  # fmt: skip
        await life.world.until(lambda: "eve" in shown(life.site), "eve", patience_s=PATIENCE_S)
        await life.delete()

    kinds, state, rows = lived(scenario, tmp_path, spark_cache, monkeypatch)

    assert kinds == [("submit", "done"), ("upgrade", "failed"), ("cancel", "done")]
    assert state == "CANCELED"
    assert rows == [("ada", 1), ("eve", 1)]


def shown(site):
    return {row["word"] for row in site.rows()}
