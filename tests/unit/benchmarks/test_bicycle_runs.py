from types import SimpleNamespace

import pytest


@pytest.mark.parametrize(
    ("epochs", "ended", "rate"),
    [
        ([(10.0, 300), (20.0, 300), (30.0, 300)], 30.0, 30.0),
        ([(9.0, 900)], 12.0, 600 / (12 - 3)),
        ([(5.0, 100), (15.0, 800)], 16.0, 600 / (16 - 7.5)),
    ],
    ids=["at the end of an epoch", "within the only one", "within a long one"],
)
def test_the_steady_rate_begins_where_a_third_was_read(load, epochs, ended, rate):
    run = load("bicycle_runs").JobRun(began=0.0, ended=ended)

    run.epochs += [(sealed, SimpleNamespace(record_count=count)) for sealed, count in epochs]

    assert run.steady_rate() == pytest.approx(rate)
