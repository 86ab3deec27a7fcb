"""Function classes that other wheels bring, called by name: with state, over epochs and crashes."""

import pytest

from bicycle_runtime.testing import script_source
from bicycle_sdk import KeyedProcessFunction, RichAsyncFunction, ValueStateDescriptor


class Counting(RichAsyncFunction[str, tuple[str, int]]):
    def __init__(self):
        self.counts: dict[str, int] = {}

    async def process(self, value, ctx):
        self.counts[value] = self.counts.get(value, 0) + 1
        return [(value, self.counts[value])]


class Totals(KeyedProcessFunction[str, str, tuple[str, int]]):
    total = ValueStateDescriptor("total", int, default=0)

    def process_element(self, value, ctx):
        total = ctx.get_value_state(self.total)
        total.update(total.value() + 1)
        return [(value, total.value())]


@pytest.fixture(autouse=True)
def installed(tmp_path, monkeypatch):
    """A wheel whose module workers have as well."""
    info = tmp_path / "counting-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: counting\nVersion: 1.0\n")
    lines = [f"{name} = {__name__}:{name.capitalize()}" for name in ("counting", "totals")]
    (info / "entry_points.txt").write_text("\n".join(["[bicycle.plugins]", *lines]) + "\n")
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.parametrize("name", ["counting", "totals"])
def test_a_function_by_name_keeps_its_state_over_epochs_crashes_and_rescales(runner, name):
    def job(env):
        words = env.add_source(script_source(str)).uid("words").key_by(str)
        words.process_plugin(name).uid("counts").collect("out")

    with runner.harness(job, parallelism=2) as harness:
        for number in range(4):
            harness.push(["a", "b", "a"])
            harness.run()
            if number == 1:
                harness.crash()
            if number == 2:
                harness.rescale(3)

        expected = [("a", n) for n in range(1, 9)] + [("b", n) for n in range(1, 5)]
        assert sorted(harness.results("out")) == expected
