"""Experiments on the protocols: what they promise, what they are put through, and what came out."""
