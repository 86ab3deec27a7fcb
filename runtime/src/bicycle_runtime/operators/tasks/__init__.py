"""Running one task of a stage plan for an epoch: operators, chains, reports."""
