"""Saved models: one safetensors file, read again over what a model's factory makes."""
