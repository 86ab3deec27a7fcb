"""Errors of the subscriber server: for clients, and at the start."""

from bicycle_sdk.errors import BicycleError

FRAME_UNREADABLE = BicycleError.row(
    "BIC-2510",
    "frame is not a request: {reason}",
    cause="A client of the subscriber server sent a frame that is not part of the protocol.",
    fix='send a text frame such as {{"op": "subscribe", "id": "a", "stream": "orders"}}',
)
SUBSCRIPTION_UNKNOWN = BicycleError.row(
    "BIC-2511",
    "subscription {id!r} not found",
    cause="A client ended a subscription that does not exist.",
    fix="use the id of a subscription that has not ended",
)
SUBSCRIPTION_TAKEN = BicycleError.row(
    "BIC-2512",
    "subscription {id!r} already exists",
    cause="A client used the same id for two subscriptions.",
    fix="choose another id, or unsubscribe first",
)
SUBSCRIPTIONS_TOO_MANY = BicycleError.row(
    "BIC-2513",
    "a client may have at most {count_max} subscriptions at once",
    cause="A client exceeds its limit of subscriptions.",
    fix="unsubscribe first, or start the server with a larger subscriptions_max",
)
STREAM_NOT_SERVED = BicycleError.row(
    "BIC-2514",
    "stream {stream!r} is not served; served streams: {known_text}",
    cause="A client requested a stream that the server does not serve.",
    fix="use a served stream, or start the server with the address of the stream",
)
PAST_NOT_KEPT = BicycleError.row(
    "BIC-2515",
    "stream {stream!r} keeps no messages, so a subscription can start only at its end",
    cause="A client requested past messages from a backend without stored messages.",
    fix='omit "from"; to keep messages, relay the stream to a file, Kafka or Redis',
)
FILTER_UNREADABLE = BicycleError.row(
    "BIC-2516",
    "filter is invalid: {problem}",
    cause="The filter of a subscription or a webhook is invalid.",
    fix=(
        'write {{"field": ["value", {{"prefix": "a"}}, {{"numeric": [">", 10]}}]}}; see the '
        "reference of the protocol"
    ),
)
CLIENTS_TOO_MANY = BicycleError.row(
    "BIC-2517",
    "the server has reached its limit of {count_max} clients",
    cause="The subscriber server has reached its limit of clients.",
    fix="connect again later, or start the server with a larger clients_max",
)
STREAM_SERVED_TWICE = BicycleError.row(
    "BIC-2518",
    "stream {stream!r} is served from two addresses: {first} and {second}; nothing was started",
    cause="Clients select a stream by its key only, and two served streams have the same key.",
    fix="remove one of the addresses, or serve it with another process",
)
WEBHOOKS_UNREADABLE = BicycleError.row(
    "BIC-2519",
    "webhooks file {path} is invalid: {problem}; nothing was started",
    cause="A file of webhooks is not TOML, or contains invalid settings.",
    fix="write tables [[webhook]] with name, stream, url, secret and dead_letters",
)
NOTHING_SERVED = BicycleError.row(
    "BIC-2520",
    "at least one stream or webhook is required; nothing was started",
    cause="The subscriber server was started without a stream and without webhooks.",
    fix="pass the address of at least one stream, or a file with --webhooks",
)
SUBSCRIBER_EXTRA_MISSING = BicycleError.row(
    "BIC-2521",
    "webhooks need a library that is not installed: {missing_text}",
    cause="Webhooks are sent with a library that is an extra of the toolkit.",
    fix="pip install 'bicycle-streams[webhooks]'",
)
ORIGIN_REFUSED = BicycleError.row(
    "BIC-2522",
    "pages of {origin!r} may not connect to {host!r}",
    cause="A browser connected from a page of another origin, or with an unknown host name.",
    fix="start the server with --origin for pages, and --name for its host names",
)
