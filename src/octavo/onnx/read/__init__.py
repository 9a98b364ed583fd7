"""From a file to a model that layers are found in: bytes, checks, one opset, no local functions."""
