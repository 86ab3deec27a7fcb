"""The former import path of ``bicycle_streams``; deprecated."""

from bicycle_runtime.base.former_paths import forward

forward(__name__, "bicycle_streams")
