"""The registry of extensions: names and classes, imported on first use.

An extension that cannot be loaded, or that claims a word twice, is a *refusal* in the list: it
never stops the others. Our own connectors come through the same hooks (``builtin``); a stranger can
add words, not replace them.
"""

from __future__ import annotations

import difflib
import importlib
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from bicycle_runtime.base.extensions import Extension, checked_words, hooks_of, installed_extensions
from bicycle_runtime.connectors import builtin
from bicycle_runtime.connectors.errors import UNKNOWN_CONNECTOR, UNKNOWN_STATE_BACKEND
from bicycle_runtime.connectors.hooks import ConnectorHooks, RuntimeHooks
from bicycle_runtime.contract import ConnectorSpec, Sink, Source
from bicycle_runtime.formats.contract import FormatHooks
from bicycle_runtime.state.settings import OWN_BACKENDS
from bicycle_sdk.errors import BicycleError


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedExtension:
    """An extension, or one word of it, that cannot be used, and why."""

    extension: str
    reason: str


OfferKind = Literal["state_backends", "metric_reporters", "job_listeners"]
_KINDS: tuple[OfferKind, ...] = typing.get_args(OfferKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A part that an extension brings; ``location`` is ``"module:name"``."""

    kind: OfferKind
    word: str
    location: str
    extension: str


class ConnectorRegistry:
    """Known connector names with the location of their classes, and other offers.

    Args:
        sources: Word -> ``"module:Class"``.
        sinks: Likewise.
        refusals: The refused registrations.
        offers: Parts of the runtime.
    """

    def __init__(
        self,
        sources: Mapping[str, str],
        sinks: Mapping[str, str],
        refusals: tuple[RefusedExtension, ...] = (),
        offers: tuple[Offer, ...] = (),
    ) -> None:
        self.offers = offers
        self.sources = dict(sources)
        self.sinks = dict(sinks)
        self.refusals = refusals

    @staticmethod
    def current_word(word: str) -> str:
        """Return the word of a connector that has another word in older jobs."""
        return builtin.FORMER_WORDS.get(word, word)

    def is_same(self, word: str, other: str) -> bool:
        """Return whether two words, such as a former and a current, name one connector."""
        words = {self.current_word(word), self.current_word(other)}
        return any(
            len({table.get(each, each) for each in words}) == 1
            for table in (self.sources, self.sinks)
        )

    def source_class(self, word: str, vertex_id: str = "") -> type[Source]:
        """Import and return the class of a source.

        Raises:
            UNKNOWN_CONNECTOR: the word is unknown, or its class cannot be imported.
        """
        found: type[Source] = self._class("source", word, vertex_id)
        return found

    def sink_class(self, word: str, vertex_id: str = "") -> type[Sink]:
        """Import and return the class of a sink; errors as in ``source_class``."""
        found: type[Sink] = self._class("sink", word, vertex_id)
        return found

    def create_source(self, spec: ConnectorSpec) -> Source:
        """Return the source of a vertex, its options checked, nothing started."""
        return self.source_class(spec.connector_type, spec.vertex_id)(spec)

    def create_sink(self, spec: ConnectorSpec) -> Sink:
        """Return the sink of a vertex, its options checked, nothing started."""
        return self.sink_class(spec.connector_type, spec.vertex_id)(spec)

    def offers_of(self, kind: OfferKind) -> tuple[Offer, ...]:
        """Return the parts of one kind, by extension."""
        return tuple(offer for offer in self.offers if offer.kind == kind)

    def state_backend(self, word: str) -> str:
        """Return the place of the factory of a state backend that an extension brings.

        Raises:
            UNKNOWN_STATE_BACKEND: no extension does.
        """
        locations = {offer.word: offer.location for offer in self.offers_of("state_backends")}
        if word not in locations:
            raise UNKNOWN_STATE_BACKEND(
                word=word,
                known_text=", ".join((*OWN_BACKENDS, *sorted(locations))),
                refusal_text="".join(
                    f"; rejected: {r.extension}: {r.reason}" for r in self.refusals
                ),
            )
        return locations[word]

    def _class(self, direction: str, word: str, vertex_id: str) -> Any:
        table = self.sources if direction == "source" else self.sinks
        base = Source if direction == "source" else Sink
        word = self.current_word(word)
        if word not in table:
            raise self._unknown(direction, word, vertex_id, reason=None)
        try:
            found = _resolve(table[word])
        except Exception as error:
            reason = f"{table[word]} cannot be imported: {type(error).__name__}: {error}"
            raise self._unknown(direction, word, vertex_id, reason=reason) from error
        if not (isinstance(found, type) and issubclass(found, base)):
            reason = f"{table[word]} is not a {base.__name__} class"
            raise self._unknown(direction, word, vertex_id, reason=reason)
        return found

    def _unknown(
        self, direction: str, word: str, vertex_id: str, *, reason: str | None
    ) -> BicycleError:
        known = sorted(self.sources if direction == "source" else self.sinks)
        close = difflib.get_close_matches(word, known, n=1)
        hint = f"write {close[0]!r}" if close else "install the extension that provides it"
        refused = [f"{refusal.extension}: {refusal.reason}" for refusal in self.refusals]
        if reason is not None:
            refused = [reason, *refused]
            hint = "repair or reinstall the extension that provides it"
            if extra := _extra_of(direction, word):
                hint = f"pip install 'bicycle-runtime[{extra}]'"
        return UNKNOWN_CONNECTOR(
            vertex=vertex_id,
            direction=direction,
            word=word,
            known=known,
            known_text=", ".join(known),
            closest=close[0] if close else None,
            refused=refused,
            refusal_text="".join(f"; refused: {text}" for text in refused),
            hint=hint,
        )


def load_registry(extensions: Iterable[Extension]) -> ConnectorRegistry:
    """Return the registry of built-in connectors and some extensions.

    1. Our own hooks come first, so that no extension takes their words.
    2. Each extension is loaded and asked by itself: whatever it raises becomes a refusal.
    """
    sources, sinks = builtin.bicycle_sources(), builtin.bicycle_sinks()
    refusals: list[RefusedExtension] = []
    offers: list[Offer] = []
    for extension in sorted(extensions, key=lambda each: each.name):
        try:
            offered, parts = _ask(extension)
        except Exception as error:  # noqa: BLE001 - a stranger's module may raise anything.
            reason = f"{type(error).__name__}: {error}"
            refusals.append(RefusedExtension(extension=extension.name, reason=reason))
            continue
        for table, words in zip((sources, sinks), offered, strict=True):
            for word, target in sorted(words.items()):
                if table.setdefault(word, target) != target:
                    reason = f"the name {word!r} is already used by {table[word]}"
                    refusals.append(RefusedExtension(extension=extension.name, reason=reason))
        for offer in parts:
            if _is_taken(offer, offers):
                reason = f"the name {offer.word!r} of {offer.kind} is already used"
                refusals.append(RefusedExtension(extension=extension.name, reason=reason))
            else:
                offers.append(offer)
    return ConnectorRegistry(sources, sinks, tuple(refusals), tuple(offers))


def _is_taken(offer: Offer, others: Iterable[Offer]) -> bool:
    is_own = offer.kind == "state_backends" and offer.word in OWN_BACKENDS
    return is_own or any((offer.kind, offer.word) == (each.kind, each.word) for each in others)


@cache
def default_registry() -> ConnectorRegistry:
    """Return the registry of this installation; entry points are read once."""
    return load_registry(installed_extensions())


def create_source(spec: ConnectorSpec) -> Source:
    """Return the source of a spec, from the connectors of this installation."""
    return default_registry().create_source(spec)


def create_sink(spec: ConnectorSpec) -> Sink:
    """Return the sink that a spec requests, from the connectors of this installation."""
    return default_registry().create_sink(spec)


def _extra_of(direction: str, word: str) -> str:
    """Return the extra that installs a built-in connector, or an empty text."""
    # Slow on the start path: only an error needs them.
    from bicycle_sdk.entry_points import load_object

    own = load_object(f"bicycle_sdk.{direction}s:SCHEMES")
    found = (load_object(location).connector for location in own.values())
    return next((connector.extra for connector in found if connector.word == word), "")


def _ask(extension: Extension) -> tuple[list[dict[str, str]], list[Offer]]:
    """Load one extension, and return its connectors and offers; refuse unknown hooks.

    Formats have a registry.
    """
    manager = hooks_of(extension, ConnectorHooks, RuntimeHooks, FormatHooks)
    manager.check_pending()
    hook = manager.hook
    connectors = [checked_words(hook.bicycle_sources()), checked_words(hook.bicycle_sinks())]
    offers = [
        Offer(kind=kind, word=word, location=location, extension=extension.name)
        for kind in _KINDS
        for word, location in sorted(checked_words(getattr(hook, f"bicycle_{kind}")()).items())
    ]
    return connectors, offers


def _resolve(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)
