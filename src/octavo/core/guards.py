"""Guards of the C++ core: whether what a block was read from still is what it was."""

from octavo import _native

call_form = _native.call_form
"""`call_form(args, kwargs)`: key, tensors and other objects of a call, or None where not all of its
tensors are plain ones. For octavo.torch."""

Guard = _native.Guard
"""`Guard(items)` with `check()`: the place of the first item that does not hold, or -1."""
