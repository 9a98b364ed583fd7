"""What a model or a machine does: plain data, without a front end."""
