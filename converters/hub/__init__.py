"""Hugging Face folders of image classifiers: rebuilt from their config, without remote code."""
