"""Quantized layers, one file each."""
