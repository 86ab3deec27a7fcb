"""Docstrings as the site shows them: its parser calls our section ``Example`` ``Examples``."""

from __future__ import annotations

import re
from typing import Any

import griffe


class Examples(griffe.Extension):
    """Shows doctests as code; under another heading their prompts would become quotes."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of a class, function or module that was read."""
        if obj.docstring is not None:
            text = obj.docstring.value
            obj.docstring.value = re.sub(
                r"^(\s*)Example:$", r"\1Examples:", text, flags=re.MULTILINE
            )
