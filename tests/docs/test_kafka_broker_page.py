"""The page about Kafka: the broker that its section for development makes."""

import re

from tests import kafka_broker as fixtures
from tests.docs.scripts import DOCS

PAGE = (DOCS / "how-to/kafka.md").read_text("utf-8")
SECTION = re.search(
    r"^## A broker for development\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE
)[1]


def test_the_broker_of_the_page_lets_in_its_user_by_scram_over_tls(tmp_path):
    [code] = re.findall(r"^```python\n(.*?)^```", SECTION, re.DOTALL | re.MULTILINE)
    names = {}
    exec(compile(code, "kafka.md", "exec"), names)

    broker = names["secured_broker"](tmp_path, tmp_path / "cache")

    settings = broker.options.security.client_settings("ada")
    assert (settings["security.protocol"], settings["sasl.mechanism"]) == (
        "SASL_SSL",
        "SCRAM-SHA-512",
    )
    assert broker.folder == tmp_path


def test_the_fixtures_of_the_page_are_there():
    named = re.findall(r"`(\w+)`", SECTION.partition("The fixtures")[2].partition("of `tests/")[0])

    assert len(named) == 5
    assert set(named) <= vars(fixtures).keys()
