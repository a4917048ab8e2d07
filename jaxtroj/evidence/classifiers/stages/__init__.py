"""Stages of text classifiers, a file each."""
