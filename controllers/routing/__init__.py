"""Reasoning routers (EDRM, arXiv 2605.22873): answer directly, standardly or with a chain of thought.

`descriptors.py` turns a probe's entropies into three numbers; each router is one file; `early_stop.py` holds the rules
that end a running chain of thought.
"""
