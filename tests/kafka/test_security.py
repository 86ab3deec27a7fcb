"""A job on Spark with a broker that lets in only who logs in by SCRAM over TLS.

The password comes from the environment for the source and from a file for the sink. It is in no
file that the run leaves behind, and in nothing that is printed.
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.kafka.kafka_feeding import feed_secure
from tests.kafka.relay_plugin import PASSWORD_VARIABLE, RELAY
from tests.kafka.sink_runs import messages_in
from tests.kafka_broker import USERS, create_topic
from tests.plugin_zoo.zoo import install

pytestmark = pytest.mark.spark

PASSWORD = USERS["ada"]
WRONG = "not-the-password-of-ada"
ACCESS_REFUSED, SECRET_MISSING = "BIC-1753", "BIC-1751"
TEXTS = [f"{number % 7}:{number}" for number in range(300)]


@pytest.fixture
def site(new_site, secure_kafka_broker, topic_numbers, tmp_path):
    """The relay between two topics of the broker, with the right password in both places."""
    client = secure_kafka_broker.client_settings("ada")
    source, target = (f"secure-{next(topic_numbers)}" for _ in range(2))
    for name in (source, target):
        create_topic(AdminClient(client), name, partitions=2)
    feed_secure(client, source, TEXTS)
    password_file = tmp_path / "password"
    password_file.write_text(f"{PASSWORD}\n")
    site = new_site("relay")
    install(site.plugins, RELAY)
    site.params = {
        "brokers": secure_kafka_broker.bootstrap,
        "source": source,
        "target": target,
        "bounded": "true",
        "ca": client["ssl.ca.location"],
        "password_file": str(password_file),
    }
    site.environment[PASSWORD_VARIABLE] = PASSWORD
    return site


def test_a_job_reads_and_writes_with_secrets_and_leaves_none_behind(site, secure_kafka_broker):
    life = site.run()
    assert life.process.returncode == 0, (life.stdout, life.stderr)

    found = messages_in(secure_kafka_broker.client_settings("ada"), site.params["target"])
    assert sorted(message.value.decode() for message in found) == sorted(TEXTS)
    assert site.newest_epoch() >= 1
    assert _files_with(PASSWORD, site.root) == []


@pytest.mark.parametrize("command", ["plan", "graph"])
def test_no_secret_is_in_what_is_told_about_a_job(site, command):
    sets = [f"--set={name}={value}" for name, value in site.params.items()]
    bicycle = str(Path(sys.executable).with_name("bicycle"))
    life = site.launch([bicycle, command, "--plugin", "relay", *sets, "--json"])
    assert life.wait() == 0, life.stderr

    assert json.loads(life.stdout)
    assert _files_with(PASSWORD, site.root) == []


def test_a_wrong_password_ends_the_start_and_is_not_repeated(site):
    site.environment[PASSWORD_VARIABLE] = WRONG

    life = site.run()

    assert life.process.returncode == 4
    assert life.answer["code"] == ACCESS_REFUSED
    assert _files_with(WRONG, site.root) == _files_with(PASSWORD, site.root) == []


def test_a_wrong_password_in_a_file_ends_the_start_and_is_not_repeated(site):
    Path(site.params["password_file"]).write_text(WRONG)

    life = site.run()

    assert life.process.returncode == 4
    assert life.answer["code"] == ACCESS_REFUSED
    assert _files_with(WRONG, site.root) == _files_with(PASSWORD, site.root) == []


def test_a_secret_that_is_not_there_is_named(site):
    Path(site.params["password_file"]).unlink()

    life = site.run()

    assert life.answer["code"] == SECRET_MISSING
    assert life.answer["facts"]["vertex"] == "out"


def _files_with(secret: str, root: Path) -> list[Path]:
    """Return the files of a run that hold a secret, plain or in base 64."""
    forms = [secret.encode(), *_base64_forms(secret.encode())]
    files = [path for path in root.rglob("*") if path.is_file()]
    assert files
    return [path for path in files if any(form in path.read_bytes() for form in forms)]


def _base64_forms(data: bytes) -> list[bytes]:
    """Return what stays the same of a text in base 64, wherever it begins within a longer one."""
    return [base64.b64encode(b"\0" * shift + data)[4:-4] for shift in range(3)]
