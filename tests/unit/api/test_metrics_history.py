"""What all jobs came to over time, in points as the first REST API had them."""

import pytest

from bicycle_runtime.service.store.history import SAMPLED
from tests.unit.api.asking import asked_of


@pytest.fixture
def ask(tmp_path):
    with asked_of(tmp_path / "home") as found:
        yield found


def keep(ask, *, ago_s, **figures):
    now_s = ask.service.clock.now_ms() // 1_000
    at_s = (now_s - ago_s) // 300 * 300 if ago_s >= 3_600 else (now_s - ago_s) // 5 * 5
    sample = {**dict.fromkeys(SAMPLED, 0), **figures}
    ask.service.history.note_samples([("job", sample, {})], at_s=at_s).result(10)
    return at_s * 1_000


def test_minutes_choose_how_far_back_and_how_closely(ask):
    old = keep(ask, ago_s=7_200, records_per_second=1.0)
    before = keep(ask, ago_s=600, records_per_second=2.0, lag_records=7)
    now = keep(ask, ago_s=10, records_per_second=3.0)

    def points(words):
        found = ask("GET", f"/api/v1/metrics/history{words}").json["items"]
        return {each["timestamp"]: each["records_per_sec"] for each in found}

    assert points("?minutes=5") == {now: 3.0}
    assert points("")[before] == 2.0
    assert old in points("?minutes=180")
    assert all(at_ms % 300_000 == 0 for at_ms in points("?minutes=180"))
    assert ask("GET", "/api/metrics/history").json == ask("GET", "/api/v1/metrics/history").json


@pytest.mark.parametrize("minutes", ["0", "10081", "-1", "many", "1.5"])
def test_minutes_have_bounds(ask, minutes):
    found = ask("GET", f"/api/v1/metrics/history?minutes={minutes}")

    assert (found.code, found.json["code"]) == (400, "BIC-2403")


def test_figures_of_all_jobs_are_had_at_each_path(ask):
    paths = ("/api/v1/metrics", "/api/metrics", "/api/v1/cluster/metrics")
    names = [{each["name"] for each in ask("GET", path).json["items"]} for path in paths]

    assert "bicycle_operator_records_in_total" in names[0]
    assert names[0] == names[1] == names[2]
