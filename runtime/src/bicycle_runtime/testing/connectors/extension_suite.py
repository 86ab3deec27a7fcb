"""The rules for an extension: all its words resolve and have a suite that ran.

This makes *exactly once* a result and not a claim: the rules below fail when a connector has no
suite, or when a rule of its suite is not part of the test run.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

import pytest

from bicycle_runtime.base.extensions import Extension
from bicycle_runtime.connectors.registry import ConnectorRegistry, load_registry
from bicycle_runtime.testing.connectors.cases import SinkCase, SourceCase
from bicycle_streams.testing.rules import PLUGIN, Suite, rules_of


class ExtensionSuite:
    """Inherit, and name the extension and the suites of its connectors.

    Attributes:
        extension: The module with the hooks.
        suites: Subclasses of ``SourceSuite`` and ``SinkSuite``: at least one for each word.
        sources: Words that these suites must cover; None for all that the extension offers.
        sinks: Likewise.
    """

    extension: ClassVar[object]
    suites: ClassVar[Collection[type[Suite]]]
    sources: ClassVar[Collection[str] | None] = None
    sinks: ClassVar[Collection[str] | None] = None

    def test_every_word_leads_to_a_class(self) -> None:
        """Check that no hook is refused, and that every class can be imported."""
        registry = registry_of(self.extension)

        assert registry.refusals == ()
        for word in self._words("sources"):
            registry.source_class(word)
        for word in self._words("sinks"):
            registry.sink_class(word)

    def test_every_connector_has_a_suite(self) -> None:
        """Check that each word is the subject of a suite."""
        assert set(self._words("sources")) <= self._tested_names(SourceCase)
        assert set(self._words("sinks")) <= self._tested_names(SinkCase)

    def test_every_rule_is_part_of_this_run(self, request: pytest.FixtureRequest) -> None:
        """Check that no rule was left out by a selection, or by naming a file."""
        assert request.config.pluginmanager.hasplugin(PLUGIN), f"name the plugin {PLUGIN}"
        run = {
            (item.cls, item.originalname)
            for item in request.session.items
            if isinstance(item, pytest.Function)
        }

        left_out = [
            f"{suite.__name__}.{rule}"
            for suite in self.suites
            for rule in rules_of(suite)
            if (suite, rule) not in run
        ]

        assert left_out == [], "run these together with this test"

    def _words(self, direction: str) -> list[str]:
        chosen = self.sources if direction == "sources" else self.sinks
        if chosen is not None:
            return sorted(chosen)
        registry = registry_of(self.extension)
        ours = ConnectorRegistry({}, {}) if is_builtin(self.extension) else load_registry([])
        if direction == "sources":
            return sorted(registry.sources.keys() - ours.sources.keys())
        return sorted(registry.sinks.keys() - ours.sinks.keys())

    def _tested_names(self, kind: type[SourceCase | SinkCase]) -> set[str]:
        cases = [suite.case_type for suite in self.suites]
        return {case.word for case in cases if issubclass(case, kind)}


def is_builtin(extension: object) -> bool:
    """Return whether these are our own hooks, whose words are in every registry."""
    return getattr(extension, "__name__", None) == "bicycle_runtime.connectors.builtin"


def registry_of(extension: object) -> ConnectorRegistry:
    """Return a registry with this extension."""
    return load_registry([Extension(name="under-test", load=lambda: extension)])
