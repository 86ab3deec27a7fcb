"""Errors of formats. Codes 29xx."""

from bicycle_sdk.errors import BicycleError

FORMAT_UNKNOWN = BicycleError.row(
    "BIC-2901",
    "unknown format {name!r}; known are {known_text}{refusal_text}",
    cause="Neither Bicycle nor an extension provides a format of this name.",
    fix="{hint}",
)
FORMAT_UNUSABLE = BicycleError.row(
    "BIC-2902",
    "format {name!r} cannot be used: {problem}",
    cause=(
        "An option of a format is unknown or wrong, or the format cannot represent the declared "
        "type."
    ),
    fix=(
        "correct the options of the format (docs/how-to/formats.md), or declare another type of "
        "records"
    ),
)
FORMAT_LIBRARY_MISSING = BicycleError.row(
    "BIC-2903",
    "format {name!r} needs a library that is not installed: {reason}",
    cause="Avro and Protobuf need optional libraries.",
    fix="install bicycle-runtime[formats] on the host that starts the job, and on its workers",
)
