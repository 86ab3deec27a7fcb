"""Errors name code of an uploaded wheel by its path in the wheel, and the wheel."""

import dataclasses
import importlib
import sys

import pytest

from bicycle_runtime.operators.errors import FunctionFailedError
from bicycle_runtime.operators.user_calls.stack_frames import blamed_frame
from bicycle_runtime.testing import Harness, script_source

CODE = """
def price(order):
    return _checked(order)

def _checked(order):
    raise ValueError("no price")
"""


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    folder = tmp_path / "bicycle-environments-0" / ("0a" * 32)
    (folder / "shop_jobs").mkdir(parents=True)
    (folder / "shop_jobs/orders.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(folder))
    yield importlib.import_module("shop_jobs.orders")
    for name in ("shop_jobs", "shop_jobs.orders"):
        sys.modules.pop(name, None)


def test_a_line_of_a_wheel_is_shown_with_its_path_in_the_wheel_and_the_wheel(wheel):
    def job(env):
        orders = env.add_source(script_source(str)).uid("orders")
        orders.map(wheel.price).uid("price").collect("out")

    with Harness(job) as harness:
        harness.push(["a"])
        with pytest.raises(FunctionFailedError) as caught:
            harness.run_epoch()

    facts = caught.value.facts
    assert facts["location"] == "shop_jobs/orders.py:6 in _checked (harness)"
    assert 'File "shop_jobs/orders.py", line 3, in price' in facts["user_traceback"]
    assert "0a0a" not in str(caught.value)


def test_a_full_path_and_a_path_in_the_wheel_are_of_one_folder():
    @dataclasses.dataclass
    class Frame:
        filename: str

    frames = [
        Frame("shop_jobs/orders.py"),
        Frame(f"/tmp/bicycle-environments-0/{'0a' * 32}/shop_jobs/prices.py"),
        Frame("/usr/lib/python3.11/json/__init__.py"),
    ]

    assert blamed_frame(frames) is frames[1]
