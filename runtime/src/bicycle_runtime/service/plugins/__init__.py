"""Plugins that came as wheels: checked, installed in environments of their own, kept by digest."""
