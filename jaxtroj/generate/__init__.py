"""Synthetic TrojAI rounds: scenes, recipe, training and writing."""
