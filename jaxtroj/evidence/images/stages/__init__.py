"""Stages of image classifiers, a stage a file; in order in `jaxtroj.evidence.stages`."""
