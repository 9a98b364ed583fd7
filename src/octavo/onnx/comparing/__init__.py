"""A quantized file beside the float model that it was made from: outputs, and layer by layer.

pairing  ->  which layers are quantized, and the values that show them in both graphs (values)
opening  ->  sessions that show those values, and the layers alone
compare  ->  errors of outputs and layers
"""
