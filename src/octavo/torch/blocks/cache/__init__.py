"""Keys and values of a decoder that a block appends to."""
