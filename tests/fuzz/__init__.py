"""Fuzz the cache against the raw tokenizer, over random tokenizers and texts."""
