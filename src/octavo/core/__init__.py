"""Numbers: storage types, scales and zero points, observers, kernels. Knows no model format."""
