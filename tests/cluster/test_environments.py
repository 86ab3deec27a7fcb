"""Plugins with environments of their own: two versions of one library, at the same time."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cluster.clustersite import ClusterSite
from tests.cluster.wheels import install, new_venv, write_wheel
from tests.waiting import until

BICYCLE = Path(sys.executable).with_name("bicycle")
# Says which version of the library it sees: where the graph is built, and in each record.
PLUGIN = """
from dataclasses import dataclass
from functools import partial

import colors
from bicycle_sdk import StreamEnvironment, bicycle_plugin, file_sink


@dataclass(frozen=True, kw_only=True)
class Params:
    '''Where to read and write.

    Attributes:
        input: Text files.
        output: Directory for the JSON lines.
    '''

    input: str
    output: str


def painted(built_with, line):
    return {"built_with": built_with, "run_with": colors.VERSION, "line": colors.paint(line)}


@bicycle_plugin(name="painter", version="1.0")
def job(env: StreamEnvironment, params: Params) -> None:
    text = env.read_text(params.input, follow=True).uid("in")
    text.map(partial(painted, colors.VERSION)).uid("paint").sink_to(
        file_sink(params.output, roll_ms=1)
    ).uid("out")
"""


@pytest.fixture(scope="module")
def environments(tmp_path_factory: pytest.TempPathFactory, wheels: list[Path]) -> list[Path]:
    """Two virtual environments, each with the plugin and another version of its library."""
    folder = tmp_path_factory.mktemp("plugins")
    [sdk] = [wheel for wheel in wheels if wheel.name.startswith("bicycle_sdk")]
    painter = write_wheel(
        folder, "painter", "1.0", {"painter.py": PLUGIN},
        requires=["colors", "bicycle-sdk"], plugins={"painter": "painter:job"},
    )  # fmt: skip
    made = []
    for number in (1, 2):
        version = f"{number}.0"
        source = f"VERSION = {number}\ndef paint(text): return text * VERSION\n"
        colors = write_wheel(folder, "colors", version, {"colors/__init__.py": source})
        place = folder / f"env-{number}"
        install(new_venv(place), "--no-index", "--no-deps", *map(str, (sdk, painter, colors)))
        made.append(place)
    return made


def test_two_versions_of_a_library_run_at_the_same_time(new_site, environments):
    sites: list[ClusterSite] = []
    for environment in environments:
        site = new_site("painter")
        (site.input / "text.txt").write_text("ab\n")
        site.start(
            *("--plugin-env", str(environment), "--conf", "spark.cores.max=1"),
            *("--parallelism", "1", "--retained-epochs", "1000"),
        )
        sites.append(site)

    for site in sites:
        until(lambda s=site: s.visible_records() or _is_over(s), "a painted line")
    for site in sites:  # Both still run: what comes now is painted while the other one is there.
        (site.input / "more.txt").write_text("cd\n")
    for site in sites:
        until(lambda s=site: len(s.visible_records()) == 2 or _is_over(s), "another line")

    assert [site.visible_records() for site in sites] == [
        [{"built_with": 1, "run_with": 1, "line": text} for text in ("ab", "cd")],
        [{"built_with": 2, "run_with": 2, "line": text} for text in ("abab", "cdcd")],
    ]
    for site, line in zip(sites, ("ab", "abab"), strict=True):  # Replayed with its own library.
        life = site.launch([str(BICYCLE), "replay", "painter", "--epoch", "1", "--json"])
        assert life.wait() == 0, (life.stdout, life.stderr)
        [sink] = json.loads(life.stdout)["sinks"]
        assert f"'line': '{line}'" in sink["records"][0]


def test_plugins_of_an_environment_are_listed_checked_and_planned(new_site, environments):
    """No job runs here, and the environment of these commands does not have the plugin."""
    site = new_site("painter")
    env = ["--plugin-env", str(environments[0]), "--json"]
    params = [f"--set={name}={value}" for name, value in site.params.items()]

    def answer(*words: str) -> dict:
        life = site.launch([str(BICYCLE), *words, *env])
        assert life.wait() == 0, (life.stdout, life.stderr)
        return json.loads(life.stdout)

    assert [plugin["name"] for plugin in answer("plugins")["plugins"]] == ["painter"]
    assert answer("plugins", "check")["ok"] == ["painter"]
    assert answer("plan", "--plugin", "painter", *params)["guarantee"] == "exactly-once"
    [chain] = answer("graph", "--plugin", "painter", *params)["chains"]
    assert len(chain["operators"]) == 3


def _is_over(site: ClusterSite) -> bool:
    life = site.lives[-1]
    assert life.process.poll() is None, (life.stdout, life.stderr)
    return False
