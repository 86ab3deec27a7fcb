"""Where records come from and go to: connectors, strangers to each other, all over ``contract``."""
