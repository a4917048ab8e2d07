"""Mending a poisoned network: unlearning with recovered triggers, and what to compare it with.

`data` divides the examples, `training` and `pruning` change weights, `outcome` measures, `mend`
does it all for one model.
"""
