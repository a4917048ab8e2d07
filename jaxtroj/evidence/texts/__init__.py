"""Text rounds: sentence vectors, and what is found with them."""
