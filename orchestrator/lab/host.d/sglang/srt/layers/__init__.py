"""What every layer of the model runs through."""
