"""State of operators: tables in memory, changes of an epoch, files of sealed ones.

A table never mixes sealed and unsealed data with other tasks: it is *base + sealed deltas*, plus
the changes of the running epoch. A task's files count only when a manifest names them.

Rooms, from the bottom: ``values`` and ``sealed`` (bytes and files), ``memory`` (tables, and the
space that holds all), ``rocksdb`` (local databases), ``disk`` (the space over these), ``stores``
(the backend by its name; keep a table at the sealed state).
"""
