"""Base learners, one file each: what an expert does with the gradients of its block."""
