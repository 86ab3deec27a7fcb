"""The command ``bicycle-operator`` as a process: it ends by a signal, and is killed."""

import asyncio
import json
import signal
import subprocess
import sys

import yaml

from bicycle_operator.main import main
from tests.operator.kubernetes import in_world
from tests.waiting import PATIENCE_S

NAME = "shop.clicks"


def start(world, folder):
    """Start an operator whose cluster is the one of the test."""
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [
            {"name": "k", "cluster": {"server": world.url, "insecure-skip-tls-verify": True}}
        ],
        "users": [{"name": "u", "user": {"token": world.connection.token or "none"}}],
    }  # fmt: skip
    (folder / "kubeconfig").write_text(json.dumps(config))
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-c", "import sys; from bicycle_operator.main import main; "
             "sys.exit(main(sys.argv[1:]))", "run", "--service", world.service_url,
             "--period-s", "0.1"],
            env={"KUBECONFIG": str(folder / "kubeconfig"), "PYTHONPATH": ":".join(sys.path)},
            stdout=log, stderr=log,
        )  # fmt: skip


def test_an_operator_that_is_killed_is_followed_by_another_one(tmp_path):
    @in_world
    async def scenario(world):
        world.jobs.held.add("submit")
        killed = start(world, tmp_path)
        try:
            await world.create(parallelism=2)
            await world.until(lambda: world.jobs.operations, "the request")
        finally:
            killed.kill()
            await asyncio.to_thread(killed.wait, PATIENCE_S)
        world.jobs.held.clear()
        follower = start(world, tmp_path)
        try:
            await world.until(lambda: world.reason() == "Applied", "the start")
        finally:
            follower.send_signal(signal.SIGTERM)
            code = await asyncio.to_thread(follower.wait, PATIENCE_S)

        assert code == 0, (tmp_path / "log").read_text()
        assert world.jobs.started == [NAME]
        assert len(world.jobs.operations) == 1

    scenario()


def test_the_definitions_have_the_bounds_of_the_runtime(capsys):
    assert main(["crds"]) == 0
    documents = list(yaml.safe_load_all(capsys.readouterr().out))
    [version] = documents[0]["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]

    assert (spec["parallelism"]["minimum"], spec["parallelism"]["maximum"]) == (1, 32_768)
    assert spec["options"]["properties"]["restart_attempts"]["maximum"] == 1_000_000
    assert spec["upgrade"]["properties"]["strategy"]["enum"] == ["stop-and-go", "blue-green"]
    assert version["subresources"]["scale"]["specReplicasPath"] == ".spec.parallelism"
    assert [each["kind"] for each in documents] == [
        *["CustomResourceDefinition"] * 4, "ClusterKopfPeering",
    ]  # fmt: skip


def test_a_token_is_not_sent_without_tls(tmp_path, capsys):
    words = ["run", "--service", "http://bicycle:7400", "--token-file", str(tmp_path / "token")]

    assert main(words) == 2
    assert "https" in capsys.readouterr().err
