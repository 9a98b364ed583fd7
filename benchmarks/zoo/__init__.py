"""Public models with labelled data, pinned, fetched on demand and evaluated."""
