"""The conformance suite for backends of streams: the rules, to inherit.

The author of a backend writes a *case* (the location of the streams, and their options) and gets
the rules by inheriting ``StreamSuite``. A backend's declarations (``Capabilities``) are proven, and
missing features must be refused. ``StreamLoadSuite`` sends 100,000 messages of 256 bytes.

This package needs pytest, which the extra ``bicycle-streams[testing]`` brings. A module with suites
names the plugin ``bicycle_streams.testing.plugin``.
"""

import pytest

# Before the imports below: only then do failed assertions of the suite show the compared values.
pytest.register_assert_rewrite(
    *(
        f"{__name__}.{name}"
        for name in (
            "consumer_rules",
            "group_rules",
            "load",
            "position_rules",
            "producer_rules",
            "transaction_rules",
        )
    )
)

from bicycle_streams.testing.cases import LosesConnections, StreamCase  # noqa: E402 - see above.
from bicycle_streams.testing.consumer_rules import ConsumerRules  # noqa: E402 - see above.
from bicycle_streams.testing.group_rules import GroupRules  # noqa: E402 - see above.
from bicycle_streams.testing.load import StreamLoadSuite  # noqa: E402 - see above.
from bicycle_streams.testing.position_rules import PositionRules  # noqa: E402 - see above.
from bicycle_streams.testing.producer_rules import ProducerRules  # noqa: E402 - see above.
from bicycle_streams.testing.transaction_rules import TransactionRules  # noqa: E402 - see above.

__all__ = ["LosesConnections", "StreamCase", "StreamLoadSuite", "StreamSuite"]


class StreamSuite(ProducerRules, ConsumerRules, PositionRules, GroupRules, TransactionRules):
    """The rules for backends. Inherit and set ``case_type``, or a fixture ``case``."""
