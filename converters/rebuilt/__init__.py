"""Classifiers of torchvision and of public code outside the Flax families, rebuilt from weights."""
