"""Errors of tests: requests for missing parts of a job, or omitted rules."""

from bicycle_sdk.errors import BicycleError


class HarnessError(BicycleError):
    """A test requested a missing object of the job, or a step that is impossible now."""

    code = "BIC-2101"
    message = "harness of job {job!r}: {problem}"
    fix = "{hint}"
