"""Failures of bounded input that will repeat: the job is not started again for them."""

import pytest

from bicycle_sdk.errors import BicycleError
from tests.plugin_zoo.zoo import install, whole
from tests.unit.jobs.running.light_jobs import LightJob

MISTAKEN = whole(
    "mistaken",
    """
    from dataclasses import dataclass

    from bicycle_sdk import bicycle_plugin, file_sink


    @dataclass(frozen=True, kw_only=True)
    class Params:
        input: str
        output: str


    @dataclass(frozen=True)
    class Row:
        number: int


    def invert(row: Row) -> float:
        return 1 / row.number


    @bicycle_plugin(name="mistaken", version="1.0")
    def job(env, params: Params):
        rows = env.read_csv(params.input, type=Row).uid("in")
        rows.map(invert).uid("invert").sink_to(file_sink(params.output)).uid("out")
    """,
)


@pytest.mark.parametrize(
    ("cell", "code", "delays"), [("x", "BIC-1404", []), ("0", "BIC-1401", [0, None])]
)
def test_bounded_input_that_fails_in_the_same_way_is_not_read_again_in_vain(
    tmp_path, monkeypatch, cell, code, delays
):
    site = tmp_path / "site"
    site.mkdir()
    install(site, MISTAKEN)
    monkeypatch.syspath_prepend(str(site))
    params = {"input": str(tmp_path / "in.txt"), "output": str(tmp_path / "out")}
    job = LightJob(tmp_path, "mistaken", params, {}, {})
    (tmp_path / "in.txt").write_text(f"number\n1\n{cell}\n")
    with pytest.raises(BicycleError) as caught:
        job.run()

    assert caught.value.code == code
    assert [note.delay_ms for note in job.status.restarts] == delays
