"""Layers that follow each other in one pass: activations, and whole encoder layers as steps."""
