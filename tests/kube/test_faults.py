"""A real API server that is killed, rejects patches with 409, and no longer has old positions."""

import asyncio

import pytest

from tests.kube.api_server import real_world
from tests.operator.faults import faulty_door
from tests.operator.services import JobsWithoutProcesses, serving

pytestmark = [pytest.mark.extended, pytest.mark.timeout(400)]


def beside_a_faulty_door(server, scenario):
    """Run a scenario whose operator reaches the API server through a faulty door."""

    async def run():
        jobs = JobsWithoutProcesses()
        async with (
            serving(jobs) as url,
            real_world(server, url, jobs) as world,
            faulty_door(server.url) as door,
            world.operator(url=door.url),
        ):
            await world.create(parallelism=2)
            await world.until(lambda: world.reason() == "Applied", "the start")
            await scenario(world, door)
        return jobs.performed

    return asyncio.run(run())


async def scaled(world, width):
    await world.scale(width)
    await world.until(lambda: world.found()["status"]["parallelism"] == width, f"scale to {width}")


def test_rejected_patches_lost_answers_and_cut_watches_only_delay_a_change(server):
    async def scenario(world, door):
        for width in (5, 1, 4):
            door.conflicts, door.lost = 2, 2
            door.cut_watches()
            await scaled(world, width)
            await world.until(lambda: not door.lost, "the lost answers")
        assert (door.counts[409], door.counts["lost"]) == (6, 6)
        assert door.counts["cut"] >= 1

    assert beside_a_faulty_door(server, scenario) == ["submit", *["rescale"] * 3]


def test_a_watch_from_before_the_api_server_was_killed_is_gone_and_begun_again(server):
    async def scenario(world, door):
        door.is_open.clear()
        door.cut_watches()
        # The API server begins again at this position, which the operator does not know.
        await world.create("other", suspend=True)
        server.kill()
        await asyncio.to_thread(server.start)
        door.is_open.set()
        await world.until(lambda: door.counts[410], "a position that is too old")
        await scaled(world, 5)

    assert beside_a_faulty_door(server, scenario) == ["submit", "rescale"]
