"""Values of stored tensors: statistics in one pass, safetensors files, saved weights."""
