"""A quantized PyTorch model beside the float one: outputs, and layer by layer.

pairing       ->  which modules are quantized, and how each pair is watched (watched)
compare       ->  both models called; errors of outputs and layers
saved_models  ->  the same of a saved model and a factory, for the command line
"""
