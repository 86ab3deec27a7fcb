"""Jars of the broker from where Ivy finds them, for real; the other tests take what Maven finds."""

import hashlib

from bicycle_runtime.dev.kafka_jars import fetchers, listed_jars


def test_the_ivy_that_pyspark_brings_fetches_the_very_jar_of_the_list(tmp_path):
    smallest = min(listed_jars(), key=lambda jar: jar.size_bytes)

    dict(fetchers())["Ivy"]([smallest], tmp_path)

    found = (tmp_path / smallest.file_name).read_bytes()
    assert hashlib.sha256(found).hexdigest() == smallest.sha256
