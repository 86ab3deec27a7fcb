"""Takeover from the last sealed epoch: operator ids, schema versions, state."""
