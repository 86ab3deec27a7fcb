"""Errors of tests: requests for missing parts of a job, or omitted rules."""

from __future__ import annotations

from bicycle_sdk.errors import BicycleError


class HarnessError(BicycleError):
    """A test requested a missing object of the job, or a step that is impossible now."""

    code = "BIC-2101"
    message = "harness of job {job!r}: {problem}"
    fix = "{hint}"


RULE_CHANGED = BicycleError.row(
    "BIC-2102",
    "suite {suite!r} overrides the rule {rule!r}, so the suite would prove nothing",
    cause="A conformance suite overrides an inherited rule.",
    fix="rename your own tests; put differences between connectors into the case",
)
