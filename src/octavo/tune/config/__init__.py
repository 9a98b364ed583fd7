"""Tuning configurations: the YAML files of Neural Compressor 1.x, validated, as plain data."""
