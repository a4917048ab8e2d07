"""Heads of TrojAI's classes with random weights, for the tests of heads."""

import torch

nn = torch.nn

WIDTH, HIDDEN = 12, 6

# The classes of NIST's model_factories.py, written anew: rnn, linear, dropout; fc_layers, relu.
SOURCE = """
import torch


class _RnnLinearModel(torch.nn.Module):
    def __init__(self, rnn, linear, p):
        super().__init__()
        self.rnn, self.linear, self.dropout = rnn, linear, torch.nn.Dropout(p)

    def forward(self, data):
        self.rnn.flatten_parameters()
        _, hidden = self.rnn(data)
        hidden = hidden[0] if isinstance(hidden, tuple) else hidden
        if self.rnn.bidirectional:
            hidden = torch.cat((hidden[-2, :, :], hidden[-1, :, :]), dim=1)
        else:
            hidden = hidden[-1, :, :]
        return self.linear(self.dropout(hidden))


class GruLinearModel(_RnnLinearModel):
    pass


class LstmLinearModel(_RnnLinearModel):
    pass


class LinearModel(torch.nn.Module):
    def __init__(self, linear, p):
        super().__init__()
        self.linear, self.dropout = linear, torch.nn.Dropout(p)

    def forward(self, data):
        return self.linear(self.dropout(data[:, 0, :]))


class FCLinearModel(torch.nn.Module):
    def __init__(self, layers, linear, p):
        super().__init__()
        self.relu, self.dropout = torch.nn.ReLU(), torch.nn.Dropout(p)
        self.fc_layers, self.linear = torch.nn.ModuleList(layers), linear

    def forward(self, data):
        data = data[:, 0, :]
        for layer in self.fc_layers:
            data = self.relu(layer(data))
        return self.linear(self.dropout(data))
"""


def recurrent(factories, cell="gru", **changed):
    """A GRU or LSTM head of TrojAI's class with random weights."""
    made = {"num_layers": 2, "bidirectional": True, "batch_first": True, "dropout": 0.0} | changed
    rnn = {"gru": nn.GRU, "lstm": nn.LSTM}[cell](WIDTH, HIDDEN, **made)
    name = {"gru": "GruLinearModel", "lstm": "LstmLinearModel"}[cell]
    linear = nn.Linear(HIDDEN * (1 + made["bidirectional"]), 2)
    return randomised(getattr(factories, name)(rnn, linear, 0.25))


def dense(factories, hidden=(9, 7)):
    """An FCLinear or Linear head of TrojAI's class with random weights."""
    widths = (WIDTH, *hidden)
    layers = [nn.Linear(a, b) for a, b in zip(widths, widths[1:], strict=False)]
    linear = nn.Linear(widths[-1], 2)
    if hidden:
        return randomised(factories.FCLinearModel(layers, linear, 0.25))
    return randomised(factories.LinearModel(linear, 0.25))


def randomised(head):
    """Weights and biases that are all distinct and large enough to matter."""
    random = torch.Generator().manual_seed(len(list(head.parameters())))
    for value in head.parameters():
        with torch.no_grad():
            value.copy_(0.5 * torch.randn(value.shape, generator=random))
    return head.eval()
