"""Files that both front ends read and write: outputs that appear whole, what a model file says."""
