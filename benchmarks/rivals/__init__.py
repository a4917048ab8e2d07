"""What the benchmarks compare with: methods of others, in PyTorch or by their own packages."""
