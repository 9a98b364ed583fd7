"""Writes nodes: names, constants, and operators of ai.octavo with their weights packed."""
