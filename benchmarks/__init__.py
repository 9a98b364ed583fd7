"""Measurements of octavo and its peers; every figure of the README comes from a script in here."""
