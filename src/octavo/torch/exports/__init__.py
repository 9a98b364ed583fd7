"""Quantized layers of a traced model as operators of ai.octavo, or as stock ones."""
