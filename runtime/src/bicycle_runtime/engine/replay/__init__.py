"""The replay of one epoch in this process, without side effects."""
