"""Pictures the notebooks draw, one subject a file. Each function calls the code it is about and returns a figure."""
