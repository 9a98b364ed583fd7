"""The check: a quantized model is compared with the float one before it is put in place."""
