"""torchvision's classifiers outside the Flax families, rebuilt from the weights of a file."""
