import sys
from pathlib import Path

import pytest

from bicycle_runtime.service.plugins.wheels import check_wheel


@pytest.mark.parametrize("name", ["bench_upgrade", "bench_service"])
def test_a_benchmark_tells_its_options_and_starts_nothing(load, name, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [name, "--help"])

    with pytest.raises(SystemExit) as end:
        load(name).main()

    assert end.value.code == 0
    assert "--quick" in capsys.readouterr().out


def test_the_fleet_has_jobs_whose_figures_grow(load):
    fleet = load("service_fleet")

    early, late = (
        fleet.status_of(7, tick=tick, pid=1, pid_started=1, now_ms=10_000) for tick in (1, 2)
    )

    assert early.id == fleet.job_name(7) == "job-007"
    assert len(early.operators) == 8
    assert late.record_count > early.record_count
    assert late.operators["count"].state_bytes > early.operators["count"].state_bytes > 0


def test_what_is_published_is_counted_again_where_it_grew(load, tmp_path):
    published = load("bench_upgrade")._published
    part = Path(tmp_path / "part-1")

    counts = []
    for text in ("a\nb\n", "a\nb\nc\n", "a\nb\nc\n"):
        part.write_text(text)
        counts.append(published(tmp_path))

    assert counts == [2, 3, 3]


def test_the_wheel_of_an_upgrade_is_one_that_a_service_takes(load, tmp_path):
    wheel = load("bench_upgrade")._wheel(tmp_path, "2.0", "")

    assert check_wheel(wheel).version == "2.0"
