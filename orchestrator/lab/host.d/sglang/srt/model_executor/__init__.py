"""One rank's forward passes."""
