"""Paths of code in packed environments, as a person knows them.

A wheel, or a job file with its neighbors, is unpacked into a temporary folder that is named by a
digest. Errors show the path below that folder: ``shop_jobs/orders.py``.
"""

from __future__ import annotations

import re

_FOLDER = re.compile(
    r"/[^\s\"']*/[0-9a-f]{64}/(?:environment/lib(?:64)?/python[0-9.]+/site-packages/)?"
)


def show_paths(text: str) -> str:
    """Return a path, or a text with paths, without folders of packed environments.

    Example:
        >>> show_paths(f"/tmp/bicycle-environments-0/{'0a' * 32}/shop_jobs/orders.py:82")
        'shop_jobs/orders.py:82'
        >>> show_paths("/home/ada/orders.py:82")
        '/home/ada/orders.py:82'
    """
    return _FOLDER.sub("", text)


def is_packed_path(path: str) -> bool:
    """Return whether a path, as shown in errors, is in a packed environment."""
    return not path.startswith(("/", "<"))
