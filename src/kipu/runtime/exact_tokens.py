"""Counting tokens with a real tokenizer, for whom an estimate is not enough (extra `tokens`)."""
