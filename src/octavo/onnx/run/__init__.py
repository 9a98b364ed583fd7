"""How an ONNX model is called: sessions, and inputs that are made up for them."""
