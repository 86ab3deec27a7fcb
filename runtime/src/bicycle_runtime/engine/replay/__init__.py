"""One epoch once more, in this process: what it did, without touching anything."""
