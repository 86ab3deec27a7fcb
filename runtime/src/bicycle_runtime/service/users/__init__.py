"""Users of the service: identities, permissions, and hidden values."""
