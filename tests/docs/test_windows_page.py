"""The code of the page about windows runs and does what the page says."""

import re
from pathlib import Path
from types import ModuleType

from bicycle_runtime.frames.frame import FieldRows
from bicycle_runtime.testing import Harness
from bicycle_sdk import windows

PAGE = (Path(__file__).parents[2] / "docs/how-to/windows.md").read_text("utf-8")


def page_module():
    found = ModuleType("windows_page")
    blocks = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    exec(compile("\n".join(blocks), "windows.md", "exec"), found.__dict__)
    return found


def test_the_first_example_counts_by_minute():
    page = page_module()
    readings = [page.Reading("s", at, at / 1_000) for at in (0, 30_000, 59_999, 60_000)]
    with Harness(lambda env: page.per_minute(env, readings)) as harness:
        harness.run()
        found = harness.results("minutes")

    assert [(r.key, r.start, r.end, r.value[0], r.value[2]) for r in found] == [
        ("s", 0, 60_000, 3, 59.999),
        ("s", 60_000, 120_000, 1, 60.0),
    ]


def test_the_window_function_sees_readings_by_time():
    page = page_module()
    readings = [page.Reading("s", at, degrees) for at, degrees in ((9, 5.0), (1, 2.0), (5, 1.0))]
    with Harness(lambda env: page.swings(env, readings)) as harness:
        harness.run()

        assert harness.results("swings") == [("s", 1, 4.0)]


def test_the_takings_are_folded_by_field(tmp_path, monkeypatch):
    monkeypatch.setattr(FieldRows, "create", None)
    path = tmp_path / "sales.jsonl"
    path.write_text(
        "".join(f'{{"shop":"s","at_ms":{n * 1_500_000},"cents":5}}\n' for n in range(4))
    )
    with Harness(lambda env: page_module().takings(env, str(path))) as harness:
        harness.run()
        found = harness.results("takings")

    hour = 3_600_000
    assert list(map(tuple, found)) == [("s", 0, hour, (3, 15)), ("s", hour, 2 * hour, (1, 5))]


def test_the_page_names_every_trigger_and_evictor():
    named = [name for name in windows.__all__ if name.endswith(("Trigger", "Evictor"))]

    assert [name for name in named if name not in PAGE] == []
