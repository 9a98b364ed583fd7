"""Inputs made up for a model that came without any, from what its graph does with them."""
