"""An exact prefix cache for tokenizers."""
