"""Benchmarks: each file one question, each function one cost."""
