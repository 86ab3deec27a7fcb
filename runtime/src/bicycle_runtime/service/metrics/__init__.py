"""Figures of the jobs and of the service as text for Prometheus."""
