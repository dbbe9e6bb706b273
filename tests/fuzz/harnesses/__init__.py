"""What a fuzzer's bytes are run through: plain functions that raise at a fault."""
