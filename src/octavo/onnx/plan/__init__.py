"""What becomes of each layer: the layers, options, a decision for each, what a target holds."""
