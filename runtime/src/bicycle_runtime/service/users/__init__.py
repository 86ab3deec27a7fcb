"""Users of the service: identities, what they may do, and what nobody is shown."""
