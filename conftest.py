"""Fixtures of all tests, here and in plugins: tiers, and a Kafka broker for those that ask."""

pytest_plugins = ["tests.temporary", "tests.tiers", "tests.kafka_broker"]
