"""Sources and sinks of records: independent connectors over ``contract``."""
