"""Branches of a filter on columns get records that the other branch does not change."""

import json
from dataclasses import dataclass

from bicycle_runtime.testing import Harness


@dataclass
class Order:
    number: int
    names: list[str]


def marked(order, mark):
    order.number += 100
    order.names.append(mark)
    return order


def test_functions_behind_a_filter_do_not_change_the_records_of_other_branches(tmp_path):
    path = tmp_path / "orders.jsonl"
    path.write_text("".join(json.dumps({"number": n, "names": []}) + "\n" for n in range(3)))

    def job(env):
        kept = env.read_jsonl(path, type=Order).filter(lambda order: order.number > 0)
        kept.map(lambda order: {"number": order.number}).collect("numbers")
        kept.map(lambda order: marked(order, "a")).collect("a")
        kept.map(lambda order: marked(order, "b")).collect("b")

    with Harness(job, parallelism=1) as harness:
        harness.run()

        assert harness.results("numbers") == [{"number": 1}, {"number": 2}]
        assert harness.results("a") == [Order(101, ["a"]), Order(102, ["a"])]
        assert harness.results("b") == [Order(101, ["b"]), Order(102, ["b"])]
