"""Operators that are killed at each request, lose patches, or run side by side."""

import asyncio

import aiohttp

from bicycle_runtime.service.watching.states import State
from tests.operator.clusters import Cluster, MortalService, on_cluster
from tests.operator.services import JobsWithoutProcesses, serving

NAME = "shop.clicks"


async def _life(cluster):
    """All changes of a resource, and the state of its job after each."""
    cluster.change(version="1.0")
    await cluster.settle()
    for change in (
        {"parallelism": 5},
        {"params": {"topic": "b"}},
        {"version": "2.0"},
        {"suspend": True},
        {"suspend": None},
        {"parallelism": 1},
    ):
        cluster.change(**change)
        await cluster.settle()
    run = cluster.jobs.runs[NAME]
    shown = (run.state, run.body["params"], run.body["digest"], run.parallelism)
    await cluster.delete()
    return shown, cluster.jobs.runs[NAME].state, cluster.jobs.performed


def _life_with(**faults):
    found = []

    @on_cluster
    async def scenario(cluster):
        if "dies_at" in faults:
            cluster.service.dies_at = faults["dies_at"]
        cluster.loses_patch = faults.get("loses_patch", -1)
        found.append((await _life(cluster), cluster.service.count, cluster.patches))

    scenario()
    return found[0]


def test_an_operator_that_is_killed_at_any_request_repeats_nothing():
    whole, requests, patches = _life_with()

    for number in range(1, requests + 2):
        for when in ("before", "after"):
            assert _life_with(dies_at=(number, when))[0] == whole, (number, when)
    for number in range(1, patches + 1):
        assert _life_with(loses_patch=number)[0] == whole, number
    assert whole[2].count("submit") == 3


def test_a_kill_while_the_spec_changes_again_ends_at_the_last_spec():
    """The operator does not know whether the first change was requested."""
    for number in range(1, 30):
        for when in ("before", "after"):

            @on_cluster
            async def scenario(cluster, number=number, when=when):
                await cluster.settle()
                cluster.service.dies_at = (cluster.service.count + number, when)
                cluster.change(parallelism=7)
                for _ in range(number % 4):
                    await cluster.step()
                cluster.change(parallelism=3, params={"topic": "c"})
                for _ in range(number % 3):
                    await cluster.step()
                cluster.change(parallelism=2)
                await cluster.settle()
                run = cluster.jobs.runs[NAME]
                assert run.state is State.RUNNING
                assert (run.parallelism, run.body["params"]) == (2, {"topic": "c"})

            scenario()


def test_two_operators_at_the_same_time_start_a_job_once():
    async def run():
        jobs = JobsWithoutProcesses()
        async with serving(jobs) as url, aiohttp.ClientSession() as session:
            one, two = (MortalService(url=url, session=session, age_s=0) for _ in range(2))
            first, second = Cluster(jobs, one), Cluster(jobs, two)
            second.resource = first.resource
            for _ in range(8):
                await asyncio.gather(first.step(), second.step())
            assert jobs.performed == ["submit"]
            first.change(parallelism=4)
            for _ in range(8):
                await asyncio.gather(first.step(), second.step())
            assert jobs.performed == ["submit", "rescale"]
            assert first.status["parallelism"] == 4

    asyncio.run(run())
