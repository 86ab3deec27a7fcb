"""Uploaded plugins: wheels are checked, installed, and stored by digest."""
