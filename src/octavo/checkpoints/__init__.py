"""Weights that other quantizers stored: their bytes as the `GroupedWeight`s that they stand for."""
