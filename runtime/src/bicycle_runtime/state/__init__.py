"""State of operators: tables in memory, changes of an epoch, files of sealed ones.

A table never mixes sealed and unsealed data with other tasks: it is *base + sealed deltas*, plus
the changes of the epoch that runs. What a task wrote counts only when a manifest names it.

Rooms, from the bottom: ``values`` and ``sealed`` (bytes and files), ``memory`` (tables, and the
space that holds all), ``rocksdb`` (local databases), ``disk`` (the space over these), ``stores``
(the backend by its name; keep a table at what is sealed).
"""
