"""What tests here and tests of plugins share: a Kafka broker, for those that ask for one."""

pytest_plugins = ["tests.kafka_broker"]
