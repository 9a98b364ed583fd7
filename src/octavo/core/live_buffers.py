"""What a kernel was made from, and whether that was written to since.

A front end's tensors may change in place between two calls. `Sources` keeps what tells: where each
tensor is, and of those that a kernel has something of its own of, what they held.
"""

from __future__ import annotations

from enum import IntEnum

from octavo import _native

Sources = _native.Sources
"""`Sources(tensors, addresses, sizes, reads)`: PyTorch tensors or None, where each begins, its
bytes (-1 where they have gaps) and its `Read`. `current(buffers)` tells whether the first values of
a dict are these tensors as they were, of the same dtypes, `current_of(tensors)` the same of a
tuple."""


class Read(IntEnum):
    """How a kernel uses a tensor from call to call."""

    LIVE = 0
    """Where it lies: whatever is written there counts."""
    COPIED = 1
    """A copy of it, as long as all its bytes are the same."""
    SUMMED = 2
    """With sums over it, as long as its version and some words all over it are the same."""
    HASHED = 3
    """With sums over it, as long as a hash of all its bytes is the same."""
