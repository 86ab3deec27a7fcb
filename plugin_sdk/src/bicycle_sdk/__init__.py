"""What the author of a Bicycle job imports.

A job is a function that gets a ``StreamEnvironment`` and builds streams on it; ``@bicycle_plugin``
marks it. This package starts nothing and needs nothing but the standard library.
"""

from bicycle_sdk.contexts import Context, ProcessContext, RuntimeContext
from bicycle_sdk.environment import StreamEnvironment
from bicycle_sdk.functions import AsyncFunction, RichAsyncFunction

__all__ = [
    "AsyncFunction",
    "Context",
    "ProcessContext",
    "RichAsyncFunction",
    "RuntimeContext",
    "StreamEnvironment",
]
