"""Operations inside a forward pass: Triton kernels, torch and NumPy twins, one dispatch. Imports nothing of ours."""
