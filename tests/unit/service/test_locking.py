"""Lock files made here, by the installer that is there, of wheels in a folder."""

import json

import pytest
from click.testing import CliRunner

from bicycle_runtime.cli import main
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.service.plugins.errors import ENVIRONMENT_NOT_BUILT, PROJECT_UNREADABLE
from bicycle_runtime.service.plugins.lock_files import read_lock
from bicycle_runtime.service.plugins.locking import lock_requirements, requirements_of
from bicycle_runtime.service.plugins.uploaded_plugins import Plugins, install_plugin
from bicycle_sdk.clock import SystemClock
from tests.cluster.wheels import write_wheel
from tests.raising import raises

JOB = """
import colors
from bicycle_sdk import StreamEnvironment, bicycle_plugin

@bicycle_plugin(name="demo", version="1")
def demo(env: StreamEnvironment) -> None:
    env.from_collection([colors.VERSION]).collect("out")
"""


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder of wheels instead of an index; it has no bicycle-sdk, as no index has."""
    folder = tmp_path / "index"
    for version in ("1.0", "2.0", "3.0"):
        files = {"colors.py": f"VERSION = {version!r}\n"}
        write_wheel(folder, "colors", version, files, requires=["shades", "msgspec"])
    write_wheel(folder, "shades", "0.5", {"shades.py": ""}, requires=["bicycle-sdk"])
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("UV_OFFLINE", "1")
    for name in ("PIP", "UV"):
        monkeypatch.setenv(f"{name}_FIND_LINKS", str(folder))
    return folder


def demo(folder, requires=("bicycle-sdk", "colors<3")):
    plugins = {"demo": "demo:demo"}
    return write_wheel(folder, "demo", "1.0", {"demo.py": JOB}, requires=requires, plugins=plugins)


def versions(data):
    return [each.line.split(" ")[0] for each in read_lock(data)]


def test_a_lock_has_all_that_is_needed_but_for_what_the_runtime_holds(index, tmp_path):
    (tmp_path / "work").mkdir()

    data = lock_requirements(tmp_path / "work", ["colors<3"], title="demo")

    assert versions(data) == ["colors==2.0", "shades==0.5"]
    assert data.count(b"--hash=sha256:") == 2


def test_versions_agree_with_those_that_the_runtime_holds(index, tmp_path):
    write_wheel(index, "colors", "2.5", {"colors.py": ""}, requires=["msgspec<0.1"])
    (tmp_path / "work").mkdir()

    data = lock_requirements(tmp_path / "work", ["colors<3"], title="demo")

    assert versions(data) == ["colors==2.0", "shades==0.5"]


def test_what_cannot_be_met_says_so(index, tmp_path):
    (tmp_path / "work").mkdir()

    with raises(ENVIRONMENT_NOT_BUILT) as caught:
        lock_requirements(tmp_path / "work", ["colors>9"], title="demo")

    assert "colors" in caught.value.facts["reason"]


def test_the_command_locks_a_project_and_a_wheel_alike(index, tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "demo"\nversion = "1.0"\n'
        'dependencies = ["bicycle-sdk>=0.1", "colors<3", "odd; python_version < \'3\'"]\n'
    )
    wheel = demo(tmp_path / "dist")
    monkeypatch.chdir(tmp_path)

    done = CliRunner().invoke(main, ["plugins", "lock", "--json"])
    other = CliRunner().invoke(main, ["plugins", "lock", str(wheel), "-o", "wheel.lock"])

    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["libraries"] == ["colors", "shades"]
    assert other.output == "wheel.lock: 2 libraries for demo 1.0\n"
    locks = [(tmp_path / name).read_bytes() for name in ("requirements.lock", "wheel.lock")]
    assert locks[0] == locks[1]


@pytest.mark.parametrize(
    ("text", "words"),
    [("[project]\n", "no [project] table with a name"), ("[", "Invalid"),
     ('[project]\nname = "a"\ndynamic = ["dependencies"]\n', "dynamic"),
     ('[project]\nname = "a"\ndependencies = ["=="]\n', "not a requirement")],
)  # fmt: skip
def test_a_project_that_cannot_be_locked_says_why(tmp_path, text, words):
    (tmp_path / "pyproject.toml").write_text(text)

    with raises(PROJECT_UNREADABLE) as caught:
        requirements_of(tmp_path)

    assert words in caught.value.facts["problem"]


def test_the_service_locks_by_itself_where_it_may(index, tmp_path):
    home = Home(tmp_path / "home")
    home.prepare()
    wheel = demo(tmp_path / "dist")

    def install():
        with wheel.open("rb") as stream:
            facts = Plugins(home).receive(wheel.name, stream, None, owner="ada", may_lock=True)
        return install_plugin(home, facts, clock=SystemClock())

    first, is_new = install()
    write_wheel(index, "colors", "2.9", {"colors.py": "VERSION = '2.9'\n"})
    again, is_new_again = install()

    assert (is_new, is_new_again) == (True, False)
    assert first == again
    assert (first.has_lock, first.libraries) == (True, ["colors 2.0", "shades 0.5"])
    folder = home.path / "plugins" / first.digest
    assert versions((folder / "requirements.lock").read_bytes()) == ["colors==2.0", "shades==0.5"]
    assert sorted(path.name for path in folder.iterdir()) == [
        wheel.name,
        "environment",
        "plugin.json",
        "requirements.lock",
    ]
