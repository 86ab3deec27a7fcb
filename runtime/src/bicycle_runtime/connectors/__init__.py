"""Sources and sinks of records: connectors, strangers to each other, all over ``contract``."""
