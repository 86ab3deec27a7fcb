"""One epoch, whether it runs or is replayed: what tasks are told, and what follows from reports."""
