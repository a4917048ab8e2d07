"""Rounds of traffic signs on roads: Round 0, and what Rounds 1 to 4 share with it."""
