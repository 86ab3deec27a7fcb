"""The extension of the page is installed, and a job runs with all of its parts."""

import importlib
import json
import re
import sys
import tomllib

import pytest

from bicycle_runtime.connectors.hooks import RuntimeHooks
from bicycle_runtime.connectors.registry import default_registry
from bicycle_runtime.formats.contract import FormatHooks
from tests.docs.scripts import DOCS
from tests.plugin_zoo.zoo import install, whole
from tests.unit.jobs.running.light_jobs import LightJob

PAGE = (DOCS / "how-to/extensions.md").read_text("utf-8")
VISITS = whole(
    "visits",
    """
    from bicycle_sdk import KeyedProcessFunction, ListStateDescriptor, bicycle_plugin


    class Visits(KeyedProcessFunction[str, str, int]):
        seen = ListStateDescriptor("seen", str)

        def process_element(self, value, ctx):
            seen = ctx.get_list_state(self.seen)
            seen.add(value)
            return [len(seen.get())]


    @bicycle_plugin(name="visits", version="1.0")
    def job(env):
        names = env.from_collection(["ada", "bob", "ada"]).uid("names").key_by(str)
        names.process(Visits()).uid("visits").print()
    """,
)


def block(language):
    [text] = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return text


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The module of the page, installed as its metadata says."""
    [(name, target)] = tomllib.loads(block("toml"))["project"]["entry-points"][
        "bicycle.extensions"
    ].items()
    site = tmp_path / "site"
    install(site, VISITS)
    (site / f"{target}.py").write_text(block("python"), "utf-8")
    info = site / "plain_parts-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plain-parts\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[bicycle.extensions]\n{name} = {target}\n")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.chdir(tmp_path)
    default_registry.cache_clear()
    yield importlib.import_module(target)
    del sys.modules[target]
    default_registry.cache_clear()


def test_a_job_runs_with_every_part_of_the_extension(installed, tmp_path):
    made = []
    space = installed.plain_space
    installed.plain_space = lambda *a, **k: made.append(space(*a, **k)) or made[-1]
    engine = {"state_backend": "plain", "max_records_per_epoch": 1}
    summary = LightJob(tmp_path, "visits", {}, engine).run()

    assert summary.state == "FINISHED"
    assert any(isinstance(each, installed.PlainSpace) for each in made)
    reports = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [each["epoch"] for each in reports] == list(range(1, summary.epoch + 1))
    assert sum(each["operators"]["visits"]["records_in"] for each in reports) == 3
    states = (tmp_path / "states.txt").read_text().split()
    assert states[:2] == ["job", "CREATED"]
    assert states[-1] == "FINISHED"


def test_the_page_names_every_hook():
    all_hooks = vars(RuntimeHooks) | vars(FormatHooks)
    hooks = {name for name in all_hooks if name.startswith("bicycle_")}
    assert set(re.findall(r"^\| `(bicycle_\w+)` \|", PAGE, re.MULTILINE)) == hooks
