"""Passes over operators and what stands around them, in the order of `passes`."""
