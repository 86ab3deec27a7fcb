"""The operations on jobs: each is declared once, and offered by every interface."""
