"""The conformance suite for connectors: rules of sources and sinks, to inherit.

The author of a connector writes a *case* (make the connector, put records in, read the output) and
gets the rules by inheriting ``SourceSuite`` or ``SinkSuite``. The suite plays the engine, kills it
at every named point, and knows nothing of any connector. A connector may declare exactly-once only
if its suite passes.

This package needs pytest, which the extra ``bicycle-runtime[testing]`` brings.
"""

import pytest

# Before the imports below: only then do failed assertions of the suite show the compared values.
pytest.register_assert_rewrite(
    *(
        f"{__name__}.{name}"
        for name in ("extension_suite", "output", "plugin", "running", "sink_suite", "source_suite")
    )
)

from bicycle_runtime.testing.connectors.cases import (  # noqa: E402 - see above.
    RECORD_COUNT,
    CanBeUnwritable,
    CarriesMetadata,
    EndlessSourceCase,
    FeedsBadRecords,
    HasOutages,
    Metadata,
    RunsInForks,
    SinkCase,
    SourceCase,
)
from bicycle_runtime.testing.connectors.extension_suite import (  # noqa: E402 - see above.
    ExtensionSuite,
)
from bicycle_runtime.testing.connectors.running import (  # noqa: E402 - see above.
    SinkRun,
    SourceRun,
    services_in,
)
from bicycle_runtime.testing.connectors.sink_suite import (  # noqa: E402 - see above.
    SinkSuite,
)
from bicycle_runtime.testing.connectors.source_suite import (  # noqa: E402 - see above.
    SourceSuite,
)
from bicycle_streams.testing.rules import (  # noqa: E402 - see above.
    rules_of,
)

__all__ = [
    "RECORD_COUNT",
    "CanBeUnwritable",
    "CarriesMetadata",
    "EndlessSourceCase",
    "ExtensionSuite",
    "FeedsBadRecords",
    "HasOutages",
    "Metadata",
    "RunsInForks",
    "SinkCase",
    "SinkRun",
    "SinkSuite",
    "SourceCase",
    "SourceRun",
    "SourceSuite",
    "rules_of",
    "services_in",
]
