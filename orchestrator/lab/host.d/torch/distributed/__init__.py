"""Collectives that are not NCCL's."""
