"""The CPU backend: a C++ extension for the ops where it pays. See build.py, ops.py and decoder.py; compute.h for the code."""
