"""The epoch loop: when an epoch runs, how much it takes, and what happens between two of them."""
