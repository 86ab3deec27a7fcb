"""A check that the installed SDK version satisfies the metadata of a plugin.

Checked by the child process before it imports the plugin. What counts as a version, and which
versions a specifier allows, is PEP 440's; this module only finds the specifier.
"""

from __future__ import annotations

import re

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

_SDK_DISTRIBUTION = "bicycle-sdk"
# Looser than the standard, so that a requirement that no version satisfies is found and rejected.
_REQUIREMENT = re.compile(
    r"\s*(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*\(?(?P<specifier>[^;)@]*)\)?"
)


def sdk_specifier(requirements: list[str]) -> str | None:
    """Return the version specifier on the SDK among ``Requires-Dist`` values, or None.

    Example:
        >>> sdk_specifier(["rich", "Bicycle_SDK (>=1.0,<2); python_version >= '3.11'"])
        '>=1.0,<2'
    """
    for text in requirements:
        match = _REQUIREMENT.match(text)
        if match and canonicalize_name(match["name"]) == _SDK_DISTRIBUTION:
            return match["specifier"].strip()
    return None


def is_satisfied(specifier: str, version: str) -> bool:
    """Return whether ``version`` is within ``specifier``. Pre-releases count as what they are.

    Args:
        specifier: Clauses separated by commas; all must hold. Empty means any version.
        version: An installed version.

    Raises:
        ValueError: the specifier is not of PEP 440.

    Example:
        >>> is_satisfied(">=1.2,<2", "1.10.0"), is_satisfied("~=1.2.1", "1.3")
        (True, False)
    """
    return SpecifierSet(specifier).contains(version, prereleases=True)
