"""Quantized layers. Each file declares its own (`registry.quantized`); nothing else lists them."""
