"""The quantized form of one layer as ONNX nodes. Front ends bring the values, this draws the nodes."""
