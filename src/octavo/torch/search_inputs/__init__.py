"""Samples of a model's inputs, for scales that are searched and bits that are spread."""
