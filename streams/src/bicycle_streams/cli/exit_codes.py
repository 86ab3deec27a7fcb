"""Exit codes of commands: the meaning of each, and each error's code, in a table.

Ranges of error codes are read from top to bottom, and the first range that contains a code applies.
The docs and the help show ``MEANINGS``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bicycle_sdk.errors import BicycleError

OK, FAILED, USAGE, PLUGIN, CONFIG, STATE, ENVIRONMENT = range(7)

MEANINGS: dict[int, str] = {
    OK: "done",
    FAILED: "the job or the request failed",
    USAGE: "the command line is invalid, or names an unknown job",
    PLUGIN: "the plugin cannot be found, loaded or converted to a graph",
    CONFIG: "a parameter, an option, an input or an output is invalid",
    STATE: "the checkpoint or state cannot be used, or another process uses it",
    ENVIRONMENT: "Java, Spark or a resource of this machine is missing",
    130: "interrupted by Ctrl-C; a job is interrupted by the second Ctrl-C",
    143: "ended immediately by a second SIGTERM",
}

# First code, last code (numbers behind "BIC-"), exit code.
CODE_RANGES: tuple[tuple[int, int, int], ...] = (
    (1001, 1002, PLUGIN), (1003, 1003, CONFIG), (1004, 1004, PLUGIN), (1006, 1006, PLUGIN),
    (1011, 1011, ENVIRONMENT), (1100, 1119, CONFIG), (1130, 1139, STATE), (1302, 1399, STATE),
    (1500, 1599, STATE), (1600, 1699, PLUGIN), (1700, 1710, CONFIG), (1714, 1714, ENVIRONMENT),
    (1720, 1720, CONFIG), (1721, 1722, STATE), (1726, 1726, STATE), (1730, 1730, CONFIG),
    (1740, 1749, STATE), (1750, 1754, CONFIG), (1765, 1766, CONFIG), (1771, 1772, STATE),
    (1802, 1803, ENVIRONMENT), (1804, 1804, PLUGIN), (1806, 1806, CONFIG),
    (1807, 1807, ENVIRONMENT), (1840, 1840, USAGE), (1841, 1841, CONFIG),
    (1850, 1869, ENVIRONMENT), (1870, 1870, CONFIG), (1871, 1871, PLUGIN), (1901, 1901, STATE),
    (1902, 1902, USAGE), (1903, 1903, STATE), (1905, 1905, CONFIG), (1908, 1908, ENVIRONMENT),
    (1909, 1909, CONFIG), (1910, 1910, PLUGIN), (1911, 1911, CONFIG), (1912, 1912, ENVIRONMENT),
    (1916, 1916, ENVIRONMENT), (1930, 1930, USAGE), (1931, 1931, CONFIG),
    (1932, 1932, ENVIRONMENT), (1933, 1933, PLUGIN), (1940, 1940, STATE), (1955, 1955, STATE),
    (1970, 1970, STATE), (1971, 1971, USAGE), (1975, 1975, USAGE), (2000, 2013, USAGE),
    (2014, 2015, ENVIRONMENT), (2016, 2098, USAGE), (2201, 2203, ENVIRONMENT),
    (2204, 2204, CONFIG), (2207, 2207, CONFIG), (2208, 2208, ENVIRONMENT),
    (2220, 2220, ENVIRONMENT), (2222, 2222, CONFIG), (2223, 2223, ENVIRONMENT),
    (2301, 2301, STATE), (2302, 2302, USAGE), (2303, 2303, STATE), (2313, 2314, ENVIRONMENT),
    (2316, 2316, ENVIRONMENT), (2323, 2325, USAGE), (2328, 2328, STATE), (2329, 2329, USAGE),
    (2333, 2333, USAGE), (2501, 2501, USAGE), (2502, 2502, ENVIRONMENT), (2503, 2503, USAGE),
    (2504, 2504, ENVIRONMENT), (2601, 2608, USAGE), (2609, 2609, CONFIG), (2618, 2618, CONFIG),
    (2625, 2625, ENVIRONMENT), (2654, 2654, ENVIRONMENT), (2660, 2660, USAGE),
    (2662, 2662, CONFIG), (2664, 2667, CONFIG), (2668, 2668, USAGE), (2700, 2704, CONFIG),
    (2706, 2706, ENVIRONMENT), (3200, 3200, CONFIG), (3201, 3201, ENVIRONMENT),
    (3202, 3202, CONFIG), (3204, 3204, PLUGIN), (3206, 3206, CONFIG),
)  # fmt: skip


def exit_code_of(error: BicycleError) -> int:
    """Return the exit code of an error; 1 if no range contains its code.

    An error of another version counts by the code that it had there.

    Example:
        >>> from bicycle_sdk.errors import ParameterError
        >>> exit_code_of(ParameterError(name="a", plugin="p", problem="missing", hint="give it"))
        4
    """
    code = str(error.facts.get("original_code", error.code))
    digits = code.removeprefix("BIC-")
    number = int(digits) if digits.isdigit() else 0
    for first, last, exit_code in CODE_RANGES:
        if first <= number <= last:
            return exit_code
    return FAILED
