"""The rival for sentiment heads: PICCOLO's Round 5 detector, written again from its description.

No trigger is searched for. Random sentence vectors are answered with every coordinate set, one at a
time, to each of 11 values, and a classifier that has seen many labelled heads judges the mean
answers: how far each class's logit moves along each coordinate, and how far the difference of the
classes departs from that of clean heads. A random forest's opinion joins these features in a
logistic regression, whose probability is clipped to [.025, .975].

Source: PurduePAML/PICCOLO, round5 (log score .32 and .26, ROC AUC .93 and .95 on NIST's heads);
Liu et al., PICCOLO, IEEE S&P 2022. What the description leaves open is chosen as a good engineer
would: regression on scaled features with a penalty by cross-validation, out-of-bag opinions of the
forest, random vectors with the mean and spread of clean ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

SAMPLES, VALUES, TREES = 200, 11, 500
CLIP = (0.025, 0.975)
_AT_ONCE = 4  # coordinates: 8,800 vectors, whose gates stay in the cache


def normal_vectors(clean: np.ndarray, count: int, seed: int) -> torch.Tensor:
    """Normal vectors `[count, d]` with the mean and deviation of clean ones `[n, d]`."""
    draw = np.random.default_rng(seed)
    drawn = draw.normal(clean.mean(axis=0), clean.std(axis=0), (count, clean.shape[1]))
    return torch.from_numpy(drawn.astype(np.float32))


@torch.inference_mode()
def sweep(head: torch.nn.Module, samples: torch.Tensor, values: torch.Tensor) -> np.ndarray:
    """Mean logits `[d, values, classes]` as described: every moved vector goes through the head.

    Args:
      head: takes `[n, d]`.
      samples: `[n, d]`.
      values: `[v, d]`, what each coordinate is set to.
    """
    count, width = samples.shape
    moved = samples.repeat(len(values), 1)
    found = []
    for coordinate in range(width):
        kept = moved[:, coordinate].clone()
        moved[:, coordinate] = values[:, coordinate].repeat_interleave(count)
        found.append(head(moved).reshape(len(values), count, -1).mean(dim=1))
        moved[:, coordinate] = kept
    return torch.stack(found).numpy()


@torch.inference_mode()
def quick_sweep(head: Any, samples: torch.Tensor, values: torch.Tensor) -> np.ndarray:
    """The same numbers with the first layer's product taken once.

    A moved vector differs in one coordinate, so its first product differs by a multiple of one row
    of the kernel. From the zero state LSTM's forget gate and all hidden kernels are inert.
    """
    first = _inputs(head, 0)
    kernel = torch.cat([w for w, _, _ in first]).T.contiguous()
    start = samples @ kernel + torch.cat([b for _, b, _ in first])
    away = values[:, :, None] - samples.T  # [v, d, n]
    found = []
    for begin in range(0, samples.shape[1], _AT_ONCE):
        chosen = slice(begin, begin + _AT_ONCE)
        gates = start + away[:, chosen, :, None] * kernel[chosen, None]
        logits = _after(head, gates.flatten(0, 2), first)
        found.append(logits.reshape(*gates.shape[:3], -1).mean(dim=2).transpose(0, 1))
    return torch.cat(found).numpy()


def _inputs(head: Any, layer: int) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]]:
    """What `_input` says of each direction of a layer."""
    ways = ("", "_reverse")[: 1 + head.rnn.bidirectional]
    return [_input(head.rnn, f"l{layer}{way}") for way in ways]


def _input(rnn: torch.nn.RNNBase, suffix: str):
    """Kernel `[3 x hidden, d]`, bias `[3 x hidden]` of the gates that count, GRU's hidden bias."""
    kernel = getattr(rnn, f"weight_ih_{suffix}")
    bias, hidden = getattr(rnn, f"bias_ih_{suffix}"), getattr(rnn, f"bias_hh_{suffix}")
    width = rnn.hidden_size
    if rnn.mode == "LSTM":
        kept = torch.cat([torch.arange(width), torch.arange(2 * width, 4 * width)])
        return kernel[kept], (bias + hidden)[kept], None
    both = torch.cat([hidden[: 2 * width], torch.zeros(width)])
    return kernel, bias + both, hidden[2 * width :]


def _after(head: Any, gates: torch.Tensor, parts) -> torch.Tensor:
    """Logits from the first layer's gates `[n, directions x 3 x hidden]`; overwrites them."""
    states = _states(gates, parts)
    for layer in range(1, head.rnn.num_layers):
        parts = _inputs(head, layer)
        kernel, bias = torch.cat([w for w, _, _ in parts]), torch.cat([b for _, b, _ in parts])
        states = _states(torch.addmm(bias, states, kernel.T), parts)
    return head.linear(states)


def _states(gates: torch.Tensor, parts) -> torch.Tensor:
    """States of all directions, side by side."""
    own = zip(gates.chunk(len(parts), dim=1), parts, strict=True)
    return torch.cat([_state(part, hidden) for part, (_, _, hidden) in own], dim=1)


def _state(gates: torch.Tensor, hidden: torch.Tensor | None) -> torch.Tensor:
    """State after a step from zeros; gates are LSTM's in, new, out or GRU's reset, update, new."""
    first, second, third = gates.chunk(3, dim=1)
    if hidden is None:
        return third.sigmoid_().mul_(first.sigmoid_().mul_(second.tanh_()).tanh_())
    new = third.addcmul_(first.sigmoid_(), hidden).tanh_()
    return new.addcmul_(second.sigmoid_(), new, value=-1.0)


@dataclass(frozen=True)
class Swept:
    """What sweeps of many heads say.

    Attributes:
      ranges: `[m, d x classes]`, largest less smallest mean logit along each coordinate.
      slopes: `[m, d]`, how much more the second class gains than the first from end to end.
      kinds: `[m]`, number of the head's architecture.
    """

    ranges: np.ndarray
    slopes: np.ndarray
    kinds: np.ndarray

    def take(self, places: np.ndarray) -> "Swept":
        """Those heads only."""
        return Swept(self.ranges[places], self.slopes[places], self.kinds[places])


def describe(means: Sequence[np.ndarray], architectures: Sequence[str]) -> Swept:
    """Features of sweeps `[d, values, 2]`, one for each head of two classes."""
    stacked = np.stack(means)
    ranges = (stacked.max(axis=2) - stacked.min(axis=2)).reshape(len(stacked), -1)
    ends = stacked[:, :, -1] - stacked[:, :, 0]
    kinds = np.unique(np.asarray(architectures), return_inverse=True)[1]
    return Swept(ranges, ends[:, :, 1] - ends[:, :, 0], kinds)


def probabilities(known: Swept, poisoned: np.ndarray, asked: Swept, seed: int) -> np.ndarray:
    """Probability of a trojan for each head of `asked`, by a classifier fitted on `known`."""
    clean = known.slopes[~poisoned].mean(axis=0)
    rows, new = _rows(known, clean), _rows(asked, clean)
    forest = RandomForestClassifier(
        TREES, criterion="entropy", oob_score=True, n_jobs=-1, random_state=seed
    ).fit(rows, poisoned)
    opinions = forest.oob_decision_function_[:, 1:], forest.predict_proba(new)[:, 1:]
    regression = GridSearchCV(
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)),
        {"logisticregression__C": np.logspace(-6, 1, 8)},
        scoring="neg_log_loss",
    ).fit(np.hstack([rows, opinions[0]]), poisoned)
    return np.clip(regression.predict_proba(np.hstack([new, opinions[1]]))[:, 1], *CLIP)


def _rows(swept: Swept, clean: np.ndarray) -> np.ndarray:
    return np.hstack([swept.ranges, np.abs(swept.slopes - clean), swept.kinds[:, None]])
