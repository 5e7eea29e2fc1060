"""What torch saves, without torch: archives, pickles that build plain data alone, tensors in place."""
