"""Stages of sentiment heads, a stage a file; in order in `jaxtroj.evidence.stages`."""
