"""The former name of the pytest plugin of the conformance suites."""

pytest_plugins = ["bicycle_streams.testing.plugin"]
