"""The file backend: streams in one ``.ss`` file, byte-compatible with SeaStreamer.

``format`` is the format and nothing else; ``view`` reads any place of a file, ``reading`` reads it
in order and fast, ``seeking`` finds places by beacons, ``writing`` appends, ``repairing`` looks for
damage, and ``streamer`` is the door.
"""
