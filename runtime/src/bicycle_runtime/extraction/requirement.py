"""Does an installed SDK version satisfy what a plugin's metadata asks for?

This is the part of PEP 440 that requirements on a versioned SDK use: release numbers, pre-, post-
and development releases, the operators ``== != <= >= < > ~= ===`` and ``.*``. The child process
checks it before it imports the plugin, in whatever environment that has, hence without a library.
Local versions (``+abc``) are ignored on both sides.
"""

from __future__ import annotations

import re
from collections.abc import Callable

__all__ = ["is_satisfied", "sdk_specifier"]

_SDK_DISTRIBUTION = "bicycle-sdk"
_INFINITY = 1 << 62
_VERSION = re.compile(
    r"v?(?:(?P<epoch>\d+)!)?(?P<release>\d+(?:\.\d+)*)"
    r"(?:[-_.]?(?P<pre>alpha|beta|preview|pre|a|b|c|rc)[-_.]?(?P<pre_number>\d*))?"
    r"(?:-(?P<post_short>\d+)|(?P<post>[-_.]?(?:post|rev|r)[-_.]?(?P<post_number>\d*)))?"
    r"(?P<dev>[-_.]?dev[-_.]?(?P<dev_number>\d*))?"
    r"(?:\+[a-z0-9]+(?:[-_.][a-z0-9]+)*)?",
    re.IGNORECASE,
)
_PRE_ORDER = {"a": 0, "alpha": 0, "b": 1, "beta": 1, "c": 2, "rc": 2, "pre": 2, "preview": 2}
_CLAUSE = re.compile(r"(===|==|!=|<=|>=|~=|<|>)\s*([^\s,]+)")
_REQUIREMENT = re.compile(
    r"\s*(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*\(?(?P<specifier>[^;)@]*)\)?"
)

_Key = tuple[int, tuple[int, ...], tuple[int, ...]]


def sdk_specifier(requirements: list[str]) -> str | None:
    """Return the version specifier on the SDK among ``Requires-Dist`` values, or None.

    Example:
        >>> sdk_specifier(["rich", "Bicycle_SDK (>=1.0,<2); python_version >= '3.11'"])
        '>=1.0,<2'
    """
    for text in requirements:
        match = _REQUIREMENT.match(text)
        if match and re.sub(r"[-_.]+", "-", match["name"]).lower() == _SDK_DISTRIBUTION:
            return match["specifier"].strip()
    return None


def is_satisfied(specifier: str, version: str) -> bool:
    """Tell whether ``version`` is within ``specifier``. Pre-releases count as what they are.

    Args:
        specifier: Clauses separated by commas; all must hold. Empty means any version.
        version: An installed version.

    Raises:
        ValueError: one of the two is not of PEP 440.

    Example:
        >>> is_satisfied(">=1.2,<2", "1.10.0"), is_satisfied("~=1.2.1", "1.3")
        (True, False)
    """
    clauses = [clause.strip() for clause in specifier.split(",") if clause.strip()]
    return all(_holds(clause, version) for clause in clauses)


def _holds(clause: str, version: str) -> bool:
    match = _CLAUSE.fullmatch(clause)
    if match is None:
        raise ValueError(f"{clause!r} is not a version clause")
    operator, wanted = match.groups()
    if operator == "===":
        return version.lower() == wanted.lower()
    if wanted.endswith(".*") and operator in {"==", "!="}:
        return _has_prefix(version, wanted[:-2]) == (operator == "==")
    found, bound = _key(version), _key(wanted)
    answers: dict[str, Callable[[], bool]] = {
        "==": lambda: found == bound,
        "!=": lambda: found != bound,
        "<=": lambda: found <= bound,
        ">=": lambda: found >= bound,
        "~=": lambda: found >= bound and _has_prefix(version, _parent(wanted)),
        "<": lambda: found < bound and not _is_early(version, of=wanted),
        ">": lambda: found > bound and not _is_late(version, of=wanted),
    }
    return answers[operator]()


def _parse(version: str) -> re.Match[str]:
    match = _VERSION.fullmatch(version.strip())
    if match is None:
        raise ValueError(f"{version!r} is not a version")
    return match


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in _parse(version)["release"].split("."))


def _base(version: str) -> tuple[int, tuple[int, ...]]:
    numbers = list(_release(version))
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return int(_parse(version)["epoch"] or 0), tuple(numbers)


def _key(version: str) -> _Key:
    match = _parse(version)
    post = _number(
        match["post_short"], match["post_short"], _number(match["post"], match["post_number"], -1)
    )
    dev = _number(match["dev"], match["dev_number"], _INFINITY)
    if match["pre"]:
        pre = (_PRE_ORDER[match["pre"].lower()], int(match["pre_number"] or 0))
    elif match["dev"] and post < 0:
        pre = (-1, 0)  # 1.0.dev1 comes before 1.0a1.
    else:
        pre = (_INFINITY, 0)
    return (*_base(version), (*pre, post, dev))


def _number(marker: str | None, digits: str | None, absent: int) -> int:
    return absent if marker is None else int(digits or 0)


def _has_prefix(version: str, prefix: str) -> bool:
    wanted = _release(prefix)
    found = _release(version) + (0,) * len(wanted)
    return _base(version)[0] == _base(prefix)[0] and found[: len(wanted)] == wanted


def _parent(version: str) -> str:
    match = _parse(version)
    numbers = match["release"].split(".")
    if len(numbers) == 1:
        raise ValueError(f"~={version} needs at least two numbers")
    return f"{match['epoch'] or 0}!" + ".".join(numbers[:-1])


def _is_early(version: str, *, of: str) -> bool:
    """Whether it is a pre-release of that release: ``<2`` takes no 2.0rc1, ``<2rc2`` does."""
    return not _is_before_final(of) and _is_before_final(version) and _base(version) == _base(of)


def _is_before_final(version: str) -> bool:
    match = _parse(version)
    return match["pre"] is not None or match["dev"] is not None


def _is_late(version: str, *, of: str) -> bool:
    """Whether it is a post-release of just that release: ``>1`` does not take 1.post1."""
    is_post = _parse(version)["post"] or _parse(version)["post_short"]
    of_is_post = _parse(of)["post"] or _parse(of)["post_short"]
    return bool(is_post) and not of_is_post and _base(version) == _base(of)
