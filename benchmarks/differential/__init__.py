"""Mutated files read by jaxtroj and, in a process of its own, by the program that would run them."""
