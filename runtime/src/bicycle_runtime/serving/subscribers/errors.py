"""Errors of the subscriber server: what clients are told, and what keeps it from starting."""

from __future__ import annotations

from bicycle_sdk.errors import BicycleError

FRAME_UNREADABLE = BicycleError.row(
    "BIC-2510",
    "this frame is no request: {reason}",
    cause="A client of the subscriber server sent a frame that is none of its protocol.",
    fix='send a text frame such as {{"op": "subscribe", "id": "a", "stream": "orders"}}',
)
SUBSCRIPTION_UNKNOWN = BicycleError.row(
    "BIC-2511",
    "there is no subscription {id!r}",
    cause="A client ended a subscription that it does not have.",
    fix="use the id of a subscription that has not ended",
)
SUBSCRIPTION_TAKEN = BicycleError.row(
    "BIC-2512",
    "there is a subscription {id!r} already",
    cause="A client gave the same id to two subscriptions.",
    fix="choose another id, or unsubscribe first",
)
SUBSCRIPTIONS_TOO_MANY = BicycleError.row(
    "BIC-2513",
    "a client may have {count_max} subscriptions at once, and this is one more",
    cause="A client has as many subscriptions as it may.",
    fix="unsubscribe first, or start the server with a larger subscriptions_max",
)
STREAM_NOT_SERVED = BicycleError.row(
    "BIC-2514",
    "this server does not serve a stream {stream!r}; it serves {known_text}",
    cause="A client asked for a stream that the server was not started with.",
    fix="ask for one of these, or start the server with the address of the stream",
)
PAST_NOT_KEPT = BicycleError.row(
    "BIC-2515",
    "stream {stream!r} keeps no messages, so that nothing can begin elsewhere than at its end",
    cause="A client wants past messages of a backend that has none.",
    fix='leave "from" out; to keep messages, relay the stream into a file, Kafka or Redis',
)
FILTER_UNREADABLE = BicycleError.row(
    "BIC-2516",
    "the filter cannot be read: {problem}",
    cause="The filter of a subscription or a webhook is none.",
    fix='write {{"field": ["value", {{"prefix": "a"}}, {{"numeric": [">", 10]}}]}}; see the page '
    "on the protocol",
)
CLIENTS_TOO_MANY = BicycleError.row(
    "BIC-2517",
    "the server has {count_max} clients, which is as many as it takes",
    cause="As many clients are connected to the subscriber server as may be.",
    fix="connect again later, or start the server with a larger clients_max",
)
STREAM_SERVED_TWICE = BicycleError.row(
    "BIC-2518",
    "two addresses have a stream {stream!r}: {first} and {second}; nothing was started",
    cause="Clients name a stream by its key alone, and two of the served streams have the same.",
    fix="leave one of them out, or serve it by another process",
)
WEBHOOKS_UNREADABLE = BicycleError.row(
    "BIC-2519",
    "the webhooks of {path} cannot be read: {problem}; nothing was started",
    cause="A file of webhooks is no TOML, or says something that it cannot.",
    fix="write tables [[webhook]] with name, stream, url, secret and dead_letters",
)
NOTHING_SERVED = BicycleError.row(
    "BIC-2520",
    "no stream and no webhook is named; nothing was started",
    cause="The subscriber server was started without anything to do.",
    fix="name the address of at least one stream, or a file with --webhooks",
)
SUBSCRIBER_EXTRA_MISSING = BicycleError.row(
    "BIC-2521",
    "the subscriber server needs libraries that are not installed: {missing_text}",
    cause="Libraries of the subscriber server are extras of the runtime.",
    fix="pip install 'bicycle-runtime[service,websocket,http]'",
)
ORIGIN_REFUSED = BicycleError.row(
    "BIC-2522",
    "pages of {origin!r} may not connect to {host!r}",
    cause="A browser connects for a page of another origin, or by a name that is not the server's.",
    fix="start the server with --origin for pages, and --name for names that lead to it",
)
