"""Spans of epochs for a receiver of OpenTelemetry, where one is configured."""
