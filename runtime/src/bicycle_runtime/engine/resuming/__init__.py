"""Takeover from the epoch sealed last: operator ids, schema versions of states, state."""
