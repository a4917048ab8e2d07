"""Rounds of small networks on anyone's labelled pictures."""
