"""A call of a block, traced, and what its values are."""
