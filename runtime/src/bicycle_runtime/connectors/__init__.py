"""Where records come from and go to. Connectors are strangers to each other; all follow ``contract``."""
