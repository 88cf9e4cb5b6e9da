"""Scheduler and request bookkeeping."""
