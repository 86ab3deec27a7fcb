"""A pipeline as a marked function for extraction, which parses its text again."""

from __future__ import annotations

from collections.abc import Callable

from bicycle_runtime.pipelines.building import build_pipeline
from bicycle_runtime.pipelines.documents import Notation, job_name, read_document
from bicycle_runtime.pipelines.nodes import check_pipeline
from bicycle_sdk import StreamEnvironment, bicycle_plugin


def pipeline_job(
    text: str, *, file: str, notation: Notation, of_plugins: bool = False
) -> Callable[[StreamEnvironment], None]:
    """Return the job of a pipeline.

    Args:
        text: The content of the file.
        file: Its name, for errors.
        notation: How it is written.
        of_plugins: Whether it may name functions of installed plugins only.

    Raises:
        PIPELINE_UNREADABLE: the notation does not allow it; checks of keys come when it is built.
    """
    document = read_document(text, file=file, notation=notation)
    description = document.data.get("description")

    @bicycle_plugin(
        name=job_name(document),
        description=description if isinstance(description, str) else "",
    )
    def pipeline(env: StreamEnvironment) -> None:
        build_pipeline(env, check_pipeline(document), of_plugins=of_plugins)

    return pipeline
