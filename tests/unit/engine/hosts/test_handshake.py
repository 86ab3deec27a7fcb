import json
import os
import subprocess
import sys

import pyspark
import pytest

from bicycle_runtime.engine.errors import HANDSHAKE_FAILED
from bicycle_runtime.engine.hosts.handshake import (
    MISSING,
    PROBE,
    HostAnswer,
    PluginSide,
    own_facts,
    probe_arguments,
    read_answer,
    require_match,
)
from tests.raising import raises

DRIVER = {
    "python": "3.11", "platform": "linux x86_64", "bicycle-sdk": "0.1.0",
    "bicycle-runtime": "0.1.0", "msgspec": "0.20", "cloudpickle": "3.1", "spark": "4.3.0",
}  # fmt: skip
PLUGIN = PluginSide(python="3.11.2", sdk="0.1.0")


def host(name, problem=None, **changes):
    facts = {**DRIVER, **{key.replace("_", "-"): value for key, value in changes.items()}}
    return HostAnswer(host=name, facts=facts, problem=problem)


def refused(plugin, *hosts, **more):
    with raises(HANDSHAKE_FAILED) as error:
        require_match(DRIVER, plugin, hosts, **more)
    return error.value.facts


def test_equal_sides_pass():
    require_match(DRIVER, PLUGIN, [host("a"), host("b")])


def test_all_differences_of_all_sides_stand_in_one_table():
    plugin = PluginSide(python="3.12.1", sdk="0.1.0")

    facts = refused(plugin, host("a"), host("b", cloudpickle="3.0", msgspec=MISSING), host("c"))

    assert facts["differing"] == ["python", "msgspec", "cloudpickle"]
    assert facts["table"][0] == ["", "driver", "plugin", "a (+1)", "b"]
    assert ["python", "3.11", "3.12 !", "3.11", "3.11"] in facts["table"]
    assert ["cloudpickle", "3.1", "-", "3.1", "3.0 !"] in facts["table"]
    assert ["msgspec", "0.20", "-", "0.20", "missing !"] in facts["table"]
    assert len(facts["table_text"].splitlines()) == len(facts["table"])


def test_another_platform_matters_only_to_machine_code():
    foreign = host("a", platform="linux aarch64")
    require_match(DRIVER, PLUGIN, [foreign])

    native = PluginSide(python="3.11.2", sdk="0.1.0", platform="linux x86_64")
    assert refused(native, foreign)["differing"] == ["platform"]
    assert refused(None, foreign, compares_platform=True)["differing"] == ["platform"]


def test_a_plugin_that_cannot_be_imported_on_a_host_is_told_with_the_host():
    facts = refused(PLUGIN, host("a"), host("b", problem="ModuleNotFoundError: colors"))

    assert facts["differing"] == []
    assert facts["problems"] == ["b: ModuleNotFoundError: colors"]


def test_a_checkpoint_folder_that_a_host_does_not_see_is_a_difference():
    there, away = ({**DRIVER, "checkpoint folder": word} for word in ("shared", "not seen"))
    hosts = [HostAnswer(host="a", facts=there), HostAnswer(host="b", facts=away)]

    assert refused(PLUGIN, *hosts)["differing"] == ["checkpoint folder"]


@pytest.mark.parametrize(("is_set", "version"), [(True, "9.8.7"), (False, pyspark.__version__)])
def test_the_probe_tells_the_versions_of_its_interpreter(tmp_path, is_set, version):
    # Hosts of YARN and pods have no SPARK_HOME.
    home = {"SPARK_HOME": str(tmp_path)} if is_set else {}
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars/spark-core_2.13-9.8.7.jar").touch()
    token = tmp_path / "token"
    token.touch()
    arguments = probe_arguments(workers="bicycle_runtime.engine.spark.worker", token=str(token))
    done = subprocess.run(
        [sys.executable, "-c", PROBE, arguments],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path), **home},
    )

    answer = read_answer(["noise", *done.stdout.splitlines()], host="x")

    own = own_facts(spark=version)
    assert answer.problem is None
    assert answer.facts == {**own, "checkpoint folder": "shared"}


def test_the_probe_is_a_program_for_any_python():
    """No syntax and no name of a young Python: it has to say what is there, however old."""
    compile(PROBE, "probe", "exec", flags=0, dont_inherit=True)
    assert not {"match ", ":=", "import annotations", 'f"', "removeprefix"} & set(PROBE.split())


def test_a_host_that_did_not_answer_is_told_with_what_it_said():
    answer = read_answer(["sh: 1: /opt/python: not found", ""], host="10.0.0.7")

    assert (answer.host, answer.facts) == ("10.0.0.7", {"python": MISSING})
    assert "/opt/python: not found" in answer.problem


def test_arguments_travel_as_json():
    names, *places = json.loads(probe_arguments(archive="a.zip", digest="d", module="m"))

    assert "cloudpickle" in names
    assert places == ["", "a.zip", "d", "m", ""]
