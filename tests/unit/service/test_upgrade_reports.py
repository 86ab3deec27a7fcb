"""The lines that ``bicycle upgrade`` prints for a plan and for an upgrade."""

import pytest

from bicycle_runtime.service.operations.upgrading import PLAN_UPGRADE, UPGRADE

CHANGES = {"operators": [{"verdict": "kept", "operator": "count"}]}


@pytest.mark.parametrize(
    ("kind", "result", "lines"),
    [
        (UPGRADE, {"changes": None}, ["job already runs version 2.0"]),
        (
            PLAN_UPGRADE,
            {"changes": CHANGES},
            [
                "  kept     count",
                "job would continue with version 2.0; nothing was changed",
            ],
        ),
        (
            UPGRADE,
            {"changes": CHANGES, "epoch": 7, "gap_ms": 1_500, "savepoint": "/s/before"},
            [
                "  kept     count",
                "job continues with version 2.0 after epoch 7; gap in the output: 1.5 s, "
                "savepoint /s/before",
            ],
        ),
        (
            UPGRADE,
            {"changes": CHANGES, "epoch": 7, "gap_ms": None, "savepoint": None},
            [
                "  kept     count",
                "job continues with version 2.0 after epoch 7; gap in the output: unknown",
            ],
        ),
    ],
)
def test_the_report_shows_operators_version_and_gap(kind, result, lines):
    shown = kind.report("job", {"plugin_version": "2.0", **result})
    assert shown.splitlines() == lines
