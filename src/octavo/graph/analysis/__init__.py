"""What a graph tells: shapes, ranks, signs, constants, attentions. Nothing is changed here, and no
target is known."""
