"""Losses, which some exporters leave in a graph."""

import torch

from converters.graph.onnx.operators import operator


def _negative_log_likelihood(call, logs, target, weight):
    """Minus the logarithm at the target, weighted and reduced; ignored targets count nothing."""
    ignored = call["ignore_index"]
    target = target.long()
    live = torch.ones_like(target, dtype=torch.bool) if ignored is None else target != ignored
    safe = torch.where(live, target, torch.zeros_like(target))
    picked = logs.gather(1, safe.unsqueeze(1)).squeeze(1)
    share = torch.ones_like(picked) if weight is None else weight[safe].to(picked.dtype)
    share = torch.where(live, share, torch.zeros_like(share))
    losses = torch.where(live, -picked, torch.zeros_like(picked)) * share
    if call["reduction"] == "none":
        return losses
    return losses.sum() if call["reduction"] == "sum" else losses.sum() / share.sum()


@operator("NegativeLogLikelihoodLoss", (12, 13, 22))
def negative_log_likelihood(call, logs, target, weight=None):
    """Of log-probabilities."""
    return _negative_log_likelihood(call, logs, target, weight)


@operator("SoftmaxCrossEntropyLoss", (12, 13))
def softmax_cross_entropy(call, scores, target, weight=None):
    """Of scores, and on request their log-probabilities."""
    logs = torch.log_softmax(scores, 1)
    loss = _negative_log_likelihood(call, logs, target, weight)
    return (loss, logs) if call.outputs > 1 else loss
