"""A quantized PyTorch model beside the float one: outputs, and layer by layer."""
