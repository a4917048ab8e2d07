"""Whole text classifiers: what inserted words do to them, and words that are searched."""
