"""Tokens that commands send to a service."""

import traceback

from bicycle_runtime.base.errors import HEADER_UNUSABLE
from bicycle_runtime.cli.remote import Remote
from tests.raising import raises


def test_a_token_that_cannot_be_sent_is_an_error_without_the_token():
    token = "ge\nheim"  # Not in a line of the traceback.
    remote = Remote(url="http://127.0.0.1:1", token=token)

    with raises(HEADER_UNUSABLE) as caught:
        remote.get("jobs")

    assert "heim" not in "".join(traceback.format_exception(caught.value))
