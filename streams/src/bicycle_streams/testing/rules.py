"""Rules that bind a suite: they can be added to, not taken away.

A rule is a test method of a suite. A subclass that replaces one is refused when it is defined; a
rule that is skipped counts as failed (see ``plugin``). A rule of a trait applies to the cases that
have the trait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest

from bicycle_sdk.errors import BicycleError

PLUGIN = "bicycle_streams.testing.plugin"
_PREFIX = "test_"
_MARK = "needed_trait"
_ROOMS = ("bicycle_runtime.testing.connectors.", "bicycle_streams.testing.")
RULE_CHANGED = BicycleError.row(
    "BIC-2102",
    "suite {suite!r} overrides the rule {rule!r}, so the suite would prove nothing",
    cause="A conformance suite overrides an inherited rule.",
    fix="rename your own tests; put differences between connectors into the case",
)
F = TypeVar("F", bound=Callable[..., Any])


def needs(trait: type) -> Callable[[F], F]:
    """Mark a rule that applies only to cases with this trait (a class)."""

    def marked(rule: F) -> F:
        setattr(rule, _MARK, trait)
        return rule

    return marked


class Suite:
    """The base of all suites.

    Attributes:
        case_type: The case to test; set it in the subclass.
    """

    case_type: ClassVar[type[Any]]

    def __init_subclass__(cls) -> None:
        """Refuse a subclass that replaces a rule.

        Raises:
            RULE_CHANGED: it does.
        """
        super().__init_subclass__()
        if cls.__module__.startswith(_ROOMS):
            return
        for name in vars(cls):
            if name in _rule_functions(cls.__mro__[1:]):
                raise RULE_CHANGED(suite=cls.__qualname__, rule=name)

    @pytest.fixture
    def case(self, tmp_path: Path) -> Iterator[Any]:
        """Yield the outside world; replace this fixture if the case needs another one."""
        case = self.case_type(tmp_path / "world")
        case.folder.mkdir()
        yield case
        case.close()

    @pytest.fixture(autouse=True)
    def _has_plugin(self, request: pytest.FixtureRequest) -> None:
        if not request.config.pluginmanager.hasplugin(PLUGIN):
            pytest.fail(f'write pytest_plugins = ["{PLUGIN}"] into this module', pytrace=False)


def applies(rule: Any, suite: type[Suite]) -> bool:
    """Return whether a test function is to be run for a suite's case."""
    trait = getattr(rule, _MARK, None)
    return trait is None or issubclass(suite.case_type, trait)


def rules_of(suite: type[Suite]) -> list[str]:
    """Return the names of the rules that a suite must pass, in order."""
    functions = _rule_functions(suite.__mro__)
    return sorted(name for name, rule in functions.items() if applies(rule, suite))


def missing_traits(suite: type[Suite]) -> list[str]:
    """Return the names of traits that the case does not have, and so does not show."""
    functions = _rule_functions(suite.__mro__).values()
    traits = {getattr(rule, _MARK) for rule in functions if not applies(rule, suite)}
    return sorted(trait.__name__ for trait in traits)


def _rule_functions(classes: tuple[type, ...]) -> dict[str, Any]:
    return dict(_named_rules(classes))


def _named_rules(classes: tuple[type, ...]) -> Iterator[tuple[str, Any]]:
    for cls in classes:
        if cls.__module__.startswith(_ROOMS):
            yield from ((n, value) for n, value in vars(cls).items() if n.startswith(_PREFIX))
