"""Jobs on real Spark whose resources are in a real API server."""

import asyncio
import functools
import random
from collections import Counter
from contextlib import asynccontextmanager

import pytest

from tests.kube.api_server import real_world
from tests.operator.lives import JOB, Life, lived, shown, site_of, upload_versions
from tests.operator.test_command import start
from tests.unit.service_process.served import Served

# An operator that ends while it connects may leave the connection to the garbage collector.
LEFT = "ignore:.*<socket.socket:pytest.PytestUnraisableExceptionWarning"
pytestmark = [
    pytest.mark.extended,
    pytest.mark.spark,
    pytest.mark.timeout(1_800),
    pytest.mark.filterwarnings(LEFT),
]

WORDS = ("ada", "bob", "cyd", "dan", "eli")
KILLS_PER_SERVICE = 10
PATIENCE_S = 300


def expected(fed):
    """Return the running counts of words, in the order of words."""
    return sorted((word, n) for word, count in Counter(fed).items() for n in range(1, count + 1))


@asynccontextmanager
async def load(site, fed):
    """Append lines all the time, and to a list."""
    is_over = asyncio.Event()

    async def feed():
        while not is_over.is_set():
            lines = random.Random(len(fed)).choices(WORDS, k=20)
            site.feed(*lines)
            fed.extend(lines)
            await asyncio.sleep(0.05)

    feeding = asyncio.create_task(feed())
    try:
        yield
    finally:
        is_over.set()
        await feeding


def test_a_job_under_load_is_scaled_suspended_rolled_back_and_ended_with_exact_results(
    server, tmp_path, spark_cache, monkeypatch
):
    fed = []

    async def scenario(life):
        await life.create()
        async with load(life.site, fed):
            started_ms = life.job.started_ms
            for width in (5, 1):
                before = life.job.event_count
                await life.world.scale(width)
                await life.until(phase="RUNNING", parallelism=width)
                await life.world.until(
                    lambda before=before: life.job.event_count > before, "words",
                    patience_s=PATIENCE_S,
                )  # fmt: skip
            assert life.job.started_ms == started_ms  # It did not restart.
            await life.change(suspend=True)
            await life.until(phase="PAUSED")
            await life.change(suspend=False)
            await life.until(phase="RUNNING")
        await life.fail_upgrade()
        fed.append("eve")
        await life.world.until(
            lambda: len(life.site.rows()) == len(fed), "all words", patience_s=PATIENCE_S
        )
        await life.delete()

    site = site_of(tmp_path, spark_cache, monkeypatch)
    kinds, state, rows = lived(scenario, site, world_at=functools.partial(real_world, server))

    assert kinds == [
        ("submit", "done"), ("rescale", "done"), ("rescale", "done"), ("pause", "done"),
        ("submit", "done"), ("upgrade", "failed"), ("suspend", "done"),
    ]  # fmt: skip
    assert state == "SUSPENDED"
    assert rows == expected(fed)


def test_a_job_under_load_is_upgraded_blue_green_with_exact_results(
    server, tmp_path, spark_cache, monkeypatch
):
    """The upgrade is requested at once, and repeated until the job has sealed an epoch."""
    fed = []

    async def scenario(life):
        await life.create(epoch_interval_ms=3_000)  # The new version has to catch up.
        started_ms = life.job.started_ms
        async with load(life.site, fed):
            await life.change(version="3.0", upgrade={"strategy": "blue-green"})
            await life.until(phase="RUNNING", version="3.0")
            assert life.job.started_ms > started_ms
            assert life.world.reason("Ready") == "Running"
            before = life.job.event_count
            await life.world.until(
                lambda: life.job.event_count > before, "words", patience_s=PATIENCE_S
            )
        await life.world.until(
            lambda: len(life.site.rows()) == len(fed), "all words", patience_s=PATIENCE_S
        )
        await life.delete()

    site = site_of(tmp_path, spark_cache, monkeypatch)
    kinds, state, rows = lived(scenario, site, world_at=functools.partial(real_world, server))

    assert [each for each in kinds if each != ("upgrade", "failed")] == [
        ("submit", "done"), ("upgrade", "done"), ("suspend", "done"),
    ]  # fmt: skip
    assert state == "SUSPENDED"
    assert rows == expected(fed)
    assert {row["by"] for row in site.rows()} == {"1.0", "3.0"}


def test_operators_and_services_that_are_killed_at_random_moments_start_a_job_once(
    server, tmp_path, spark_cache, monkeypatch, request
):
    kills = request.config.getoption("--operator-kills")
    moments = random.Random(46)
    site = site_of(tmp_path, spark_cache, monkeypatch)
    served = Served(site.home.path).start()
    fed = []

    async def killed(world, width, number):
        """Start an operator, change the resource, and kill the operator, or the service too."""
        operator = start(world, tmp_path)
        await world.change(parallelism=width)
        await asyncio.sleep(moments.uniform(0.2, 3))
        if number % KILLS_PER_SERVICE == 0:
            served.process.kill()
            served.process.wait()
            served.start()
            world.service_url = served.url
        operator.kill()
        await asyncio.to_thread(operator.wait)
        world.forget_operators()

    async def run():
        async with real_world(server, served.url) as world:
            life = Life(world, site)
            async with world.operator():
                await life.create()
            started_ms = life.job.started_ms
            async with load(site, fed):
                for number in range(1, kills + 1):
                    await killed(world, number % 3 + 1, number)
            async with world.operator():
                await world.change(parallelism=2)
                await life.until(phase="RUNNING", parallelism=2)
                assert life.job.started_ms == started_ms
                await world.until(
                    lambda: len(site.rows()) == len(fed), "all words", patience_s=PATIENCE_S
                )
                await life.delete()

    try:
        upload_versions(served, tmp_path / "wheels")
        asyncio.run(run())
        operations = served.get(f"/api/v1/operations?job={JOB}&limit=500")["items"]
    finally:
        served.ask("POST", f"/api/v1/jobs/{JOB}/cancel")
        served.end()
    counts = Counter((each["kind"], each["state"]) for each in operations)

    assert counts["submit", "done"] == counts["suspend", "done"] == 1
    assert {kind for kind, _ in counts} == {"submit", "rescale", "suspend"}
    assert sorted((row["word"], row["count"]) for row in site.rows()) == expected(fed)
    assert shown(site) <= set(WORDS)
