"""What the call of a PyTorch block asks before it runs, asked in C++. For octavo.torch."""

from octavo import _native

call_form = _native.call_form
"""`call_form(args, kwargs)`: key, tensors, objects and sizes of a call, or None where not all of it
is plain. The tensors and the objects are in order, depth first; the sizes are those of all tensors.
The key tells all the rest: names, numbers, None, and of each tensor dtype and rank, and which axes
have no or one element."""

first_broken = _native.first_broken
"""`first_broken(guards)`: the index of the first of seven flat tuples that does not hold, or -1.
They say: what dicts hold (dict, key, value), what they do not (dict, key), types (object, type),
attributes (object, name, value), unchanged memory (Sources, dict or tuple of tensors), what dicts
hold again, and hooks (dict, key, set of ids: the dict in there has no other values)."""
