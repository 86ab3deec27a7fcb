"""The operator beside an API server that rejects patches, loses answers, and cuts watches."""

import pytest

from tests.operator.faults import faulty_door
from tests.operator.kubernetes import in_world

NAME = "shop.clicks"


@pytest.mark.parametrize("fault", ["conflicts", "lost"])
def test_a_patch_that_fails_is_written_again(fault):
    @in_world
    async def scenario(world):
        async with faulty_door(world.url) as door, world.operator(url=door.url):
            await world.create(parallelism=2)
            await world.until(lambda: world.reason() == "Applied", "the start")
            setattr(door, fault, 2)
            await world.change(parallelism=4)
            await world.until(lambda: world.found()["status"]["parallelism"] == 4, "the rescale")
            await world.change(parallelism=3)
            await world.until(lambda: world.found()["status"]["parallelism"] == 3, "the next")
            assert getattr(door, fault) == 0

        assert world.jobs.performed == ["submit", "rescale", "rescale"]

    scenario()


@in_world
async def test_watches_that_are_cut_and_too_old_only_delay_a_change(world):
    async with faulty_door(world.url) as door, world.operator(url=door.url):
        await world.create(parallelism=2)
        await world.until(lambda: world.reason() == "Applied", "the start")
        for width in (5, 1, 4):
            door.cut_watches()
            await world.end_watches()
            await world.change(parallelism=width)
            await world.until(
                lambda width=width: world.found()["status"]["parallelism"] == width, "the rescale"
            )
        assert door.counts["cut"] >= 1

    assert world.jobs.performed == ["submit", "rescale", "rescale", "rescale"]
