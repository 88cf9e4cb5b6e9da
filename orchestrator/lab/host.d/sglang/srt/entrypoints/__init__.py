"""Processes, HTTP, warm-up."""
