"""Blocks of a zoo's networks that norm each picture by itself, in torch; see `networks`.

Maps are `[n, c, h, w]`, as in `blocks`; tokens are `[n, tokens, width]`.
"""

import torch
from torch import nn
from torch.nn import functional


class ConvNeXtBlock(nn.Module):
    """A 7x7 filter of each channel, a norm over channels, a hidden layer, beside a shortcut."""

    def __init__(self, width: int):
        super().__init__()
        self.filtered = nn.Conv2d(width, width, 7, 1, 3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.hidden = _hidden(width, 4 * width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[n, width, h, w]` of the same."""
        y = self.filtered(x).permute(0, 2, 3, 1)
        return x + self.hidden(self.norm(y)).permute(0, 3, 1, 2)


class ChannelNorm(nn.Module):
    """A layer norm over the channels of each pixel."""

    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[n, width, h, w]` of the same."""
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Tokens(nn.Module):
    """Squares of pixels as tokens, with or without a learnt vector for each place."""

    def __init__(self, channels: int, side: int, square: int, width: int, has_places: bool):
        super().__init__()
        self.count = (side // square) ** 2
        self.squares = nn.Conv2d(channels, width, square, square)
        start = 0.02 * torch.randn(1, self.count, width)
        self.places = nn.Parameter(start) if has_places else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[n, tokens, width]` of pictures `[n, c, h, w]`."""
        tokens = self.squares(x).flatten(2).transpose(1, 2)
        return tokens if self.places is None else tokens + self.places


class AttentionBlock(nn.Module):
    """Self-attention of `heads` heads and a hidden layer, each after a norm, beside shortcuts."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.joined = nn.Linear(width, width)
        self.hidden = _hidden(width, 2 * width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[n, tokens, width]` of the same."""
        count, tokens, width = x.shape
        parts = self.queries_keys_values(self.norm1(x))
        parts = parts.reshape(count, tokens, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        seen = functional.scaled_dot_product_attention(query, key, value)
        x = x + self.joined(seen.transpose(1, 2).reshape(count, tokens, width))
        return x + self.hidden(self.norm2(x))


class MixerBlock(nn.Module):
    """A hidden layer over the places, then one over the channels, beside shortcuts."""

    def __init__(self, tokens: int, width: int):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.places, self.channels = _hidden(tokens, width), _hidden(width, 2 * width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[n, tokens, width]` of the same."""
        x = x + self.places(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class MeanToken(nn.Module):
    """A norm, then the mean over the tokens."""

    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[n, width]` of `[n, tokens, width]`."""
        return self.norm(x).mean(dim=1)


def _hidden(width: int, wide: int) -> nn.Sequential:
    """A hidden layer and the way back."""
    return nn.Sequential(nn.Linear(width, wide), nn.GELU(), nn.Linear(wide, width))
