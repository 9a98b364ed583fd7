"""A quantized file beside the float model that it was made from: outputs, and layer by layer."""
