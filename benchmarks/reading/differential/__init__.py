"""Mutated files read by jaxtroj and, in a process apart, by the program that would run them."""
