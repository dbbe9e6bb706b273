"""tokcache beside every peer: the same prompts, one run, ids compared.

``python -m benchmarks.peers`` is the command; ``make bench-peers`` sets up what it needs.
"""
