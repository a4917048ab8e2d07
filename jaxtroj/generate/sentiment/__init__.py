"""Rounds of sentiment heads on sentence embeddings: Rounds 5 and 6."""
