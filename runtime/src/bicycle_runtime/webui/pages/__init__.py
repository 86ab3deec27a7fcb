"""Modules of pages, one per group: their data and templates."""
