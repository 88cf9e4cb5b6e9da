"""The ways to add up a tensor over all ranks."""
