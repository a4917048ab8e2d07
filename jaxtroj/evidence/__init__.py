"""Evidence of a model: stages in order, and the one loop that runs them."""
