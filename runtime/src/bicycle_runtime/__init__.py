"""The Bicycle runtime: loads plugins, builds their graphs, runs them on Spark.

Each folder is a room with one subject and may import the rooms under it only; the order stands in
the ``pyproject.toml`` of the repository and is checked. This module holds nothing but the version.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
