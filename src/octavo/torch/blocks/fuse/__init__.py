"""Steps that become one: attention, linear layers, activations beside them."""
