"""Sources and sinks that are clients of a stream, such as Redis or Pulsar.

An *input* returns the end of each shard and reads a range of sequences; a *target* writes one epoch
with its number, at once or not at all. Source and sink are the same for all backends.
"""
