"""tokcache beside every peer: the same prompts, one run, ids compared.

``make bench-peers`` sets up what it needs and runs ``python -m benchmarks.peers``.
"""
