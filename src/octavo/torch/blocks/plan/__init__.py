"""Programs for a call: compiled, planned for sizes, run."""
