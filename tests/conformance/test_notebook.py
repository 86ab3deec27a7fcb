"""Cells of a notebook, run by a real kernel, which runs them inside its event loop."""

import json
import subprocess
import sys

CELLS = [
    """
import asyncio
from bicycle_sdk import AsyncFunction, MapFunction, StreamEnvironment
from bicycle_sdk.testing import FunctionHarness
from bicycle_runtime.testing import Harness, script_source

FACTOR = 10

class Scale(MapFunction):
    def map(self, value):
        return value * FACTOR

async def plus_one(value):
    await asyncio.sleep(0)
    return value + 1

async def same(value):
    return value

def numbers():
    return StreamEnvironment().from_collection([1, 2]).map(Scale()).map(plus_one).map(same)
""",
    "numbers().preview(5)",
    "FACTOR = 100",
    "numbers().preview(5)",
    "(await plus_one(1), Scale().map(1))",
    """
def job(env):
    env.add_source(script_source(int)).uid("numbers").map(plus_one).key_by(same).count().collect("o")

with Harness(job, parallelism=2) as harness:
    harness.push([1, 1])
    harness.run_epoch()
    published = harness.published
published
""",
    """
class Split(AsyncFunction):
    async def process(self, value, ctx):
        await asyncio.sleep(0)
        return value.split()

with FunctionHarness(Split()) as harness:
    words = harness.process("to be", "or")
words
""",
]

CLIENT = """
import json, sys
from jupyter_client.manager import KernelManager

manager = KernelManager(transport="ipc", connection_file=sys.argv[1])
manager.start_kernel()
client = manager.client()
client.start_channels()
client.wait_for_ready(timeout=100)
answers = []

def note(message):
    content = message["content"]
    if message["msg_type"] == "execute_result":
        answers.append(content["data"]["text/plain"])
    elif message["msg_type"] == "error":
        answers.append(content["ename"] + ": " + content["evalue"])

for cell in json.load(sys.stdin):
    client.execute_interactive(cell, timeout=100, output_hook=note)
client.stop_channels()
manager.shutdown_kernel(now=True)
print(json.dumps(answers))
"""


def test_previews_and_harnesses_run_in_the_cells_of_a_notebook(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, str(tmp_path / "kernel.json")],
        input=json.dumps(CELLS),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=110,
    )

    assert json.loads(done.stdout.splitlines()[-1]) == [
        "[11, 21]",
        "[101, 201]",
        "(2, 100)",
        "[(2, 1), (2, 2)]",
        "['to', 'be', 'or']",
    ]
