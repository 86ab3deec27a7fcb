"""The operator beside a real service and real Spark: each change of a resource."""

import pytest

from tests.operator.lives import lived, shown, site_of

pytestmark = pytest.mark.spark


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
        await life.world.until(lambda: "url" in life.world.savepoint("first"), "the savepoint")
        await life.count("ada")
        await life.change(suspend=True)
        await life.until(phase="PAUSED")
        assert life.status["lastSavepoint"]["url"] == life.world.savepoint("first")["url"]
        await life.change(suspend=False)
        await life.until(phase="RUNNING")
        await life.count("zoe")
        await life.delete()

    kinds, state, rows = lived(scenario, site_of(tmp_path, spark_cache, monkeypatch))

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
        await life.change(deletionPolicy="Cancel")
        await life.fail_upgrade()
        await life.world.create("unknown", plugin="nothing")
        await life.world.until(
            lambda: life.world.reason(name="unknown") in ("Rejected", "OperationFailed"),
            "the rejection",
        )  # fmt: skip
        await life.world.until(lambda: "eve" in shown(life.site), "eve")
        await life.delete()

    kinds, state, rows = lived(scenario, site_of(tmp_path, spark_cache, monkeypatch))

    assert kinds == [("submit", "done"), ("upgrade", "failed"), ("cancel", "done")]
    assert state == "CANCELED"
    assert rows == [("ada", 1), ("eve", 1)]
