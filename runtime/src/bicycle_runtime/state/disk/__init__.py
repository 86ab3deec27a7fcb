"""The state space of which only a part is in memory: hot entries in Python, all others on disk."""
