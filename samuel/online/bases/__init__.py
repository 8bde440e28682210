"""Base learners, one file each: how an expert uses the gradients of its block."""
