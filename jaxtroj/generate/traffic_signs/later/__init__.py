"""Rounds 1 to 4: many signs, many architectures, polygons and filters as triggers."""
