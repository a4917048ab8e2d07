"""Files to Flax models, without executing anything in the file."""
