"""Kernels compiled at run time."""
