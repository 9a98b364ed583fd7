"""Quantized models from one target to the other: the same integers under other operators."""
