"""Quantized layers as ONNX nodes: one operator of `torch.ops.octavo`, one file."""
