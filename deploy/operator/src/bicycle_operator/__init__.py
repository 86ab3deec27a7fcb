"""The Kubernetes operator of Bicycle: resources become operations of a service."""

__version__ = "0.1.0"
