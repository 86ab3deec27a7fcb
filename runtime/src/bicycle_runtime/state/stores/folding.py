"""Folding sealed files into a base, without types and without the table that works with them.

It runs in a thread beside the epochs. Python lets one thread at a time compute, so it works on one
key group at a time and rests in between: an epoch beside it takes a little longer, none waits.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial

from bicycle_runtime.state.sealed.bases import BaseFolder, BaseIndex, Make
from bicycle_runtime.state.sealed.changes import Section, full_sections, merge_sections
from bicycle_runtime.state.sealed.refs import RangeState, StateRef
from bicycle_runtime.state.stores.contents import parts_of

__all__ = ["fold_files"]

_FILE_BYTES = 32 << 20  # A base lies in files of about this size.
_REST = 3.0  # It rests so many times as long as it works.


def fold_files(state: RangeState) -> Make:
    """Return what writes the base of a sealed state. Its files stay while the state names them."""
    return partial(_fold, state.files)


def _fold(refs: Sequence[StateRef], folder: BaseFolder) -> None:
    by_group: dict[int, list[Section]] = {}
    for ref in refs:
        for part in parts_of(folder.files, [ref], folder.groups):
            for section in part:
                by_group.setdefault(section.group, []).append(section)
            folder.pause()
    written: list[StateRef] = []
    for sections in _gathered(by_group, folder):
        path = f"{folder.path}/{len(written):04}.base"
        written.append(folder.files.write_base(path, sections, epoch=folder.epoch))
        folder.note_file()
    groups = (folder.groups.start, folder.groups.stop)
    folder.finish(BaseIndex(epoch=folder.epoch, groups=groups, refs=tuple(written)))


def _gathered(by_group: dict[int, list[Section]], folder: BaseFolder) -> Iterator[list[Section]]:
    """Yield what is left of all groups, as much at a time as one file has."""
    gathered: list[Section] = []
    size = 0
    for group in sorted(by_group):
        began = time.perf_counter()
        sections = full_sections(merge_sections([by_group.pop(group)]))
        gathered += sections
        size += sum(len(bytes(s.keys)) + len(bytes(s.values)) for s in sections)
        folder.pause(_REST * (time.perf_counter() - began))
        if size > _FILE_BYTES:
            yield gathered
            gathered, size = [], 0
    yield gathered
