"""Errors of formats. Codes 29xx."""

from __future__ import annotations

from bicycle_sdk.errors import BicycleError

FORMAT_UNKNOWN = BicycleError.row(
    "BIC-2901",
    "there is no format {name!r}; known are {known_text}{refusal_text}",
    cause="Neither Bicycle nor an extension offers a format of this name.",
    fix="{hint}",
)
FORMAT_UNUSABLE = BicycleError.row(
    "BIC-2902",
    "the format {name!r} cannot be used: {problem}",
    cause="An option of a format is unknown or wrong, or the declared type has no form in it.",
    fix="give what the page on formats says of it, or declare another type of records",
)
FORMAT_LIBRARY_MISSING = BicycleError.row(
    "BIC-2903",
    "the format {name!r} needs a library that is not installed: {reason}",
    cause="Avro and Protobuf are read and written by libraries that are optional.",
    fix="install bicycle-runtime[formats] where the job starts, and on its workers",
)
