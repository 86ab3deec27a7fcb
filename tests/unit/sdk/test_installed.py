"""Function classes of installed plugins, used by name."""

import pytest

from bicycle_sdk import StreamEnvironment
from bicycle_sdk.errors import StreamDefinitionError

CODE = """
from bicycle_sdk import AsyncFunction, KeyedProcessFunction, bicycle_plugin

@bicycle_plugin(name="shout")
class Shout(AsyncFunction):
    async def process(self, value, ctx):
        return [value.upper()]

@bicycle_plugin(name="count")
class Count(KeyedProcessFunction):
    def process_element(self, value, ctx):
        return [1]

@bicycle_plugin(name="limit")
class Limit(AsyncFunction):
    def __init__(self, limit):
        self.limit = limit
    async def process(self, value, ctx):
        return [value]

@bicycle_plugin
def job(env):
    pass
"""


@pytest.fixture(autouse=True)
def installed(tmp_path, monkeypatch):
    info = tmp_path / "shouting-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shouting\nVersion: 1.0\n")
    names = {"shout": "Shout", "count": "Count", "limit": "Limit", "job": "job"}
    lines = [f"{name} = shouting_code:{target}" for name, target in names.items()]
    (info / "entry_points.txt").write_text("\n".join(["[bicycle.plugins]", *lines]) + "\n")
    (tmp_path / "shouting_code.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_a_function_class_of_another_wheel_is_called_by_name():
    words = StreamEnvironment().from_collection(["a", "b"])
    assert words.process_plugin("shout", type=str).preview(2) == ["A", "B"]
    assert words.process_plugin("shout", type=str).map(len)._vertex.input_type is None
    counted = words.key_by(str).process_plugin("count")
    assert counted._vertex.details["is_keyed"]
    assert counted.preview(2) == [1, 1]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("nobody", "plugin 'nobody' not found; installed: count, job, limit, shout"),
        ("job", "'job' is a job"),
        ("limit", "without arguments"),
        ("count", "needs a key"),
    ],
)
def test_what_cannot_be_called_by_name_is_refused(name, problem):
    words = StreamEnvironment().from_collection(["a"])
    with pytest.raises(StreamDefinitionError) as caught:
        words.process_plugin(name)
    assert problem.partition("; installed")[0] in caught.value.facts["problem"]
