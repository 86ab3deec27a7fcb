"""Errors of tests: they ask for what the job does not have, or leave out a rule."""

from __future__ import annotations

from bicycle_sdk.errors import BicycleError


class HarnessError(BicycleError):
    """A test asks for something that the job does not have, or that cannot be done now."""

    code = "BIC-2101"
    message = "harness of job {job!r}: {problem}"
    fix = "{hint}"


RULE_CHANGED = BicycleError.row(
    "BIC-2102",
    "suite {suite!r} replaces the rule {rule!r}, so it would prove nothing",
    cause="A conformance suite replaces a rule that it inherits.",
    fix="give tests of your own other names; what differs between connectors belongs to the case",
)
