"""How long the parts take, beside other tools that do the same work."""
