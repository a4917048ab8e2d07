"""Scanning whole folders: jobs in groups, guarded processes, this machine or a Ray cluster."""
