"""Plugins with environments of their own: two versions of a real library, at the same time."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cluster.clustersite import ClusterSite
from tests.cluster.wheels import install, new_venv, write_wheel
from tests.waiting import until

BICYCLE = Path(sys.executable).with_name("bicycle")
# No environment can have both, and the second one has a class that the first one lacks.
LIBRARY, VERSIONS = "semver", ("2.13.0", "3.0.4")
# Says which version of the library it sees: where the graph is built, and in each record.
PLUGIN = """
from dataclasses import dataclass
from functools import partial

import semver
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


def bumped(built_with, line):
    kind = getattr(semver, "Version", semver.VersionInfo)
    next_version = f"{kind.__name__} {kind.parse(line).bump_minor()}"
    return {"built_with": built_with, "run_with": semver.__version__, "next": next_version}


@bicycle_plugin(name="releases", version="1.0")
def job(env: StreamEnvironment, params: Params) -> None:
    text = env.read_text(params.input, follow=True).uid("in")
    text.map(partial(bumped, semver.__version__)).uid("bump").sink_to(
        file_sink(params.output, roll_ms=1)
    ).uid("out")
"""


@pytest.fixture(scope="module")
def environments(tmp_path_factory: pytest.TempPathFactory, wheels: list[Path]) -> list[Path]:
    """Two virtual environments, each with the plugin and another version of its library."""
    folder = tmp_path_factory.mktemp("plugins")
    [sdk] = [wheel for wheel in wheels if wheel.name.startswith("bicycle_sdk")]
    plugin = write_wheel(
        folder, "releases", "1.0", {"releases.py": PLUGIN},
        requires=[LIBRARY, "bicycle-sdk"], plugins={"releases": "releases:job"},
    )  # fmt: skip
    made = []
    for version in VERSIONS:
        place = folder / f"env-{version}"
        install(new_venv(place), "--no-deps", str(sdk), str(plugin), f"{LIBRARY}=={version}")
        made.append(place)
    return made


def test_two_versions_of_a_library_run_at_the_same_time(new_site, environments):
    sites: list[ClusterSite] = []
    for environment in environments:
        site = new_site("releases")
        (site.input / "text.txt").write_text("1.2.3\n")
        site.start(
            *("--plugin-env", str(environment), "--conf", "spark.cores.max=1"),
            *("--parallelism", "1", "--retained-epochs", "1000"),
        )
        sites.append(site)

    for site in sites:
        until(lambda s=site: s.visible_records() or _is_over(s), "a version")
    for site in sites:  # Both still run: what comes now is parsed while the other one is there.
        (site.input / "more.txt").write_text("4.5.6-rc.1\n")
    for site in sites:
        until(lambda s=site: len(s.visible_records()) == 2 or _is_over(s), "another version")

    for site, version, kind in zip(sites, VERSIONS, ("VersionInfo", "Version"), strict=True):
        assert site.visible_records() == [
            {"built_with": version, "run_with": version, "next": f"{kind} {text}"}
            for text in ("1.3.0", "4.6.0")
        ]
        # Replayed with its own library.
        life = site.launch([str(BICYCLE), "replay", "releases", "--epoch", "1", "--json"])
        assert life.wait() == 0, (life.stdout, life.stderr)
        [sink] = json.loads(life.stdout)["sinks"]
        assert f"'next': '{kind} 1.3.0'" in sink["records"][0]


def test_plugins_of_an_environment_are_listed_checked_and_planned(new_site, environments):
    """No job runs here, and the environment of these commands does not have the plugin."""
    site = new_site("releases")
    env = ["--plugin-env", str(environments[0]), "--json"]
    params = [f"--set={name}={value}" for name, value in site.params.items()]

    def answer(*words: str) -> dict:
        life = site.launch([str(BICYCLE), *words, *env])
        assert life.wait() == 0, (life.stdout, life.stderr)
        return json.loads(life.stdout)

    assert [plugin["name"] for plugin in answer("plugins")["plugins"]] == ["releases"]
    assert answer("plugins", "check")["ok"] == ["releases"]
    assert answer("plan", "--plugin", "releases", *params)["guarantee"] == "exactly-once"
    [chain] = answer("graph", "--plugin", "releases", *params)["chains"]
    assert len(chain["operators"]) == 3


def _is_over(site: ClusterSite) -> bool:
    life = site.lives[-1]
    assert life.process.poll() is None, (life.stdout, life.stderr)
    return False
