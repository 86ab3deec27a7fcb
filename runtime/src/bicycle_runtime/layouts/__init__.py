"""Layouts of stored data, as data: names, versions, magic words, and fields.

Nothing here does anything. The rooms above read and write these objects; their fields, in this
order and by these names, are the checkpoint format. ``tests/golden/layouts.txt`` lists them: a
change here shows there, and is a change of format with a fragment of its own in the changelog. A
field is never renamed, only succeeded, and gets a default that stands for its absence.

What a connector keeps below ``connectors/`` or stages is its own, and is declared beside it.
"""
