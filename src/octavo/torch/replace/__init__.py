"""What takes the place of each module of a model, why, and how it is put there."""
