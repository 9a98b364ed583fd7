"""Numbers: storage types, scales and zero points, histograms, kernels. Knows no model format."""
