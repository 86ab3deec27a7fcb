"""Tests on a real broker: their marker, and a word count under load.

The fixtures `kafka_broker`, `secure_kafka_broker`, `new_kafka_broker`, `kafka_admin` and `topic`
stand in tests/kafka_broker.py, where every test of the repository finds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from bicycle_runtime.dev.kafka_broker import KafkaBroker
from tests.kafka.counting import Load
from tests.kafka.kafka_feeding import source_run
from tests.kafka.light_driver import LightSite
from tests.kafka.strikes import QUICK_COUNTS
from tests.kafka_broker import create_topic
from tests.plugin_zoo.zoo import install
from tests.spark.jobsite import JobSite

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what stands here."""
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.kafka)


@pytest.fixture
def new_load(topic_numbers: Iterator[int]) -> Iterator[Callable[..., Load]]:
    """Make a word count's topics on a broker, with a writer of lines and a watcher of counts."""
    loads: list[Load] = []

    def make(broker: KafkaBroker, **options: int) -> Load:
        name = f"load-{next(topic_numbers)}"
        admin = AdminClient(broker.client_settings())
        for topic in (f"{name}-raw", f"{name}-counts"):
            create_topic(admin, topic, partitions=4)
        loads.append(Load(broker.client_settings(), name, **options))
        return loads[-1]

    yield make
    for load in loads:
        load.close()


@pytest.fixture
def load(kafka_broker: KafkaBroker, new_load: Callable[..., Load]) -> Load:
    """A word count under load on the common broker."""
    return new_load(kafka_broker)


@pytest.fixture
def new_light_site(tmp_path: Path) -> Iterator[Callable[[Load], LightSite]]:
    """Make places to run drivers without Spark; none of them outlives the test."""
    sites: list[LightSite] = []

    def make(load: Load) -> LightSite:
        sites.append(LightSite(tmp_path / f"light-{len(sites)}", load.params))
        return sites[-1]

    yield make
    for site in sites:
        site.kill_everything()


@pytest.fixture
def new_site(tmp_path: Path, spark_cache: Path) -> Iterator[Callable[[str], JobSite]]:
    """Make places to run the command on Spark; none of its processes outlives the test."""
    sites: list[JobSite] = []

    def make(plugin: str) -> JobSite:
        site = JobSite(tmp_path / f"site-{len(sites)}", spark_cache, plugin=plugin)
        sites.append(site)
        return site

    yield make
    for site in sites:
        site.kill_everything()


@pytest.fixture
def new_spark_site(new_site: Callable[[str], JobSite]) -> Callable[[Load], JobSite]:
    """Make places to run the word count of a load on Spark."""

    def make(load: Load) -> JobSite:
        site = new_site("wordcount_kafka")
        site.params = dict(load.params)
        return site

    return make


@pytest.fixture
def light_site(load: Load, new_light_site: Callable[[Load], LightSite]) -> LightSite:
    """The word count of ``load`` without Spark."""
    return new_light_site(load)


@pytest.fixture
def spark_site(load: Load, new_spark_site: Callable[[Load], JobSite]) -> JobSite:
    """The word count of ``load`` on Spark."""
    return new_spark_site(load)


@pytest.fixture
def quick_site(load: Load, new_site: Callable[[str], JobSite]) -> JobSite:
    """The word count of ``load`` on Spark; it starts again at once when Spark is lost."""
    site = new_site("quick_counts")
    install(site.plugins, QUICK_COUNTS)
    site.params = dict(load.params)
    return site


@pytest.fixture
def reading(kafka_broker, tmp_path):
    """Make and start sources, of the common broker unless the test has another; stop them."""
    runs = []

    def start(*arguments, broker=kafka_broker, **properties):
        run = source_run(broker, tmp_path, *arguments, **properties).start()
        runs.append(run)
        return run

    yield start
    for run in runs:
        run.stop()
