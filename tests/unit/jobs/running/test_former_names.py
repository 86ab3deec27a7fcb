"""The log of a job names the former names of options that its plugin uses."""

import logging

from tests.plugin_zoo.zoo import install, whole
from tests.unit.jobs.running.light_jobs import LightJob

FORMER = whole(
    "former",
    """
    from dataclasses import dataclass

    from bicycle_sdk import bicycle_plugin, file_sink


    @dataclass(frozen=True, kw_only=True)
    class Params:
        input: str
        output: str


    @bicycle_plugin(name="former", version="1.0")
    def job(env, params: Params):
        lines = env.read_text(params.input).uid("in")
        lines.sink_to(file_sink(params.output, max_bytes=64_000_000)).uid("out")
    """,
)


def test_a_former_name_of_an_option_is_logged_at_the_start(tmp_path, monkeypatch, caplog):
    install(tmp_path / "site", FORMER)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    (tmp_path / "in.txt").write_text("a\nb\n")
    params = {"input": str(tmp_path / "in.txt"), "output": str(tmp_path / "out")}
    job = LightJob(tmp_path, "former", params, {}, {})
    with caplog.at_level(logging.WARNING):
        summary = job.run()

    found = [each.bicycle_fields for each in caplog.records if each.message == "former_option_name"]
    assert summary.record_count == 2
    assert [(each["name"], each["present"]) for each in found] == [("max_bytes", "roll_bytes")]
    assert found[0]["location"].rpartition(":")[0].endswith("former.py")
