"""Function classes that a job calls by name: their wheel travels, though nobody requires it."""

from __future__ import annotations

from tests.plugin_zoo.zoo import install, whole
from tests.spark.jobsite import expected_counts, visible_counts

TALLYING = """
from bicycle_sdk import RichAsyncFunction, bicycle_plugin


@bicycle_plugin(name="tallying", version="1.0")
class Tallying(RichAsyncFunction[str, dict]):
    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    async def process(self, value, ctx):
        count = self.counts[value] = self.counts.get(value, 0) + 1
        return [{"word": value, "count": count}]
"""
TALLIED = """
from dataclasses import dataclass

from bicycle_sdk import StreamEnvironment, bicycle_plugin, file_sink


@dataclass(frozen=True, kw_only=True)
class Params:
    '''Where to read and write.

    Attributes:
        input: Text files.
        output: Directory for the JSON lines.
    '''

    input: str
    output: str


@bicycle_plugin(name="tallied", version="1.0")
def job(env: StreamEnvironment, params: Params) -> None:
    words = env.read_text(params.input).uid("in").flat_map(str.split).uid("split")
    counts = words.key_by(str).process_plugin("tallying", type=dict).uid("count")
    counts.sink_to(file_sink(params.output)).uid("out")
"""


def test_the_wheel_of_a_function_that_is_called_by_name_goes_to_the_hosts(new_site):
    site = new_site("tallied")
    install(site.plugins, whole("tallying", TALLYING, target="tallying:Tallying"))
    install(site.plugins, whole("tallied", TALLIED))
    words = site.write_words(lines=200)
    life = site.start("--parallelism", "2", "--max-records-per-epoch", "100", "--json")

    assert life.wait() == 0, (life.stdout, life.stderr)
    assert visible_counts(site.output) == expected_counts(words)
