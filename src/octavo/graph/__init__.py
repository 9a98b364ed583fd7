"""The quantized form of one layer as ONNX nodes: front ends bring values, this draws nodes."""
