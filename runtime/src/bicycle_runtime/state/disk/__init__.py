"""The state space that is partly in memory: hot entries in Python, others on disk."""
