"""Files of GRU and LSTM sentiment heads (`model_factories` of TrojAI), and what they say.

Reference:
  NIST, trojai-example, round 5 model_factories.py: LstmLinearModel and GruLinearModel.
"""

import dataclasses
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal

from converters.errors import MismatchError, UnsupportedArchitectureError
from converters.families.dense_head import DROPOUT, LINEAR
from converters.families.family import Family
from converters.families.hyperparameters import ExpectedModule, differing_modules
from converters.families.names import NameRule
from converters.families.recurrent import GATES, RnnHeadConfig, single_step
from converters.weights import ModuleInfo, Weights

TABLE = (
    NameRule(r"rnn\.(weight_(?:ih|hh)_l\d+(?:_reverse)?)", r"rnn.\1", "linear"),
    NameRule(r"rnn\.(bias_(?:ih|hh)_l\d+(?:_reverse)?)", r"rnn.\1", "vector"),
    NameRule(r"linear\.weight", "linear.kernel", "linear"),
    NameRule(r"linear\.bias", "linear.bias", "vector"),
)
_LAYER = re.compile(r"rnn\.weight_ih_l([0-9]{1,4})(?:_reverse)?")
_TORCH = {"gru": "GRU", "lstm": "LSTM"}
_ARCHITECTURES = {"gru": "GruLinear", "lstm": "LstmLinear"}


def architecture(config: RnnHeadConfig) -> str:
    """TrojAI's name of the head."""
    return _ARCHITECTURES[config.cell]


def recognise(shapes: Mapping[str, tuple[int, ...]]) -> RnnHeadConfig | None:
    """Configuration read off torch tensor shapes, or None when this is another network.

    Raises:
      UnsupportedArchitectureError: recurrent layers that are neither GRU nor LSTM, or that have
        projections.
    """
    inputs, head = shapes.get("rnn.weight_ih_l0", ()), shapes.get("linear.weight", ())
    if len(inputs) != 2 or len(head) != 2:
        return None
    if any(name.startswith("rnn.weight_hr") for name in shapes):
        raise UnsupportedArchitectureError(
            "the LSTM has projections (rnn.weight_hr_l0, proj_size); expected one without, as "
            "TrojAI's heads have"
        )
    bidirectional = any(name.startswith("rnn.") and name.endswith("_reverse") for name in shapes)
    hidden = shapes.get("rnn.weight_hh_l0", (0, head[1] // (1 + bidirectional)))[-1]
    return RnnHeadConfig(
        cell=_cell(inputs[0], hidden),
        input_size=inputs[1],
        hidden_size=hidden,
        # Counted, not taken from the largest number, which a file may choose at will.
        num_layers=len({int(m[1]) for m in map(_LAYER.fullmatch, shapes) if m}),
        bidirectional=bidirectional,
        num_classes=head[0],
        has_bias=any(name.startswith("rnn.bias_") for name in shapes),
    )


def _cell(outputs: int, hidden: int) -> Literal["gru", "lstm"]:
    for cell, gates in GATES.items():
        if outputs == gates * hidden:
            return "gru" if cell == "gru" else "lstm"
    raise UnsupportedArchitectureError(
        f"the recurrent layer has {outputs} outputs for {hidden} hidden units; expected 3 times as "
        "many (GRU) or 4 times (LSTM)"
    )


def batch_first(infos: Mapping[str, ModuleInfo]) -> bool:
    """Layout of sequences that a pickled module takes; TrojAI's when the file does not say.

    Raises:
      MismatchError: it is no truth value.
    """
    info = infos.get("rnn")
    value = True if info is None else info.attributes.get("batch_first")
    if not isinstance(value, bool):
        raise MismatchError(f"rnn.batch_first is {value}, expected True or False")
    return value


def expected_modules(config: RnnHeadConfig) -> dict[str, ExpectedModule]:
    """What a pickled head must be, by pattern of the module path."""
    kind = _TORCH[config.cell]
    attributes = {
        "mode": kind,
        "input_size": config.input_size,
        "hidden_size": config.hidden_size,
        "num_layers": config.num_layers,
        "bias": config.has_bias,
        "bidirectional": config.bidirectional,
        "proj_size": 0,
    }
    return {
        "": ExpectedModule(frozenset({f"model_factories.{_ARCHITECTURES[config.cell]}Model"})),
        "rnn": ExpectedModule(frozenset({f"torch.nn.modules.rnn.{kind}"}), attributes),
        "linear": LINEAR,
        "dropout": DROPOUT,
    }


def _remarks(config: RnnHeadConfig, weights: Weights) -> Iterator[str]:
    if not weights.modules:
        yield "a state dict does not say whether batch_first is on; taken as on"
    if not config.batch_first:
        yield "sequences have time before batch: [t, n, d]"


def torch_module(config: RnnHeadConfig, names: Collection[str] = ()) -> Any:
    """A head of torch.nn's layers with the forward pass of `model_factories`.

    It takes what the converted head takes: `[n, d]` for one step, or sequences.

    Raises:
      ValueError: the head is reduced to a single step.
    """
    from torch import nn

    if config.single_step:
        raise ValueError("torch has no reduced heads; pass the configuration before single_step")

    class RecurrentLayers(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = {"gru": nn.GRU, "lstm": nn.LSTM}[config.cell](
                config.input_size,
                config.hidden_size,
                config.num_layers,
                bias=config.has_bias,
                batch_first=config.batch_first,
                bidirectional=config.bidirectional,
            )
            width = config.hidden_size * (1 + config.bidirectional)
            self.linear = nn.Linear(width, config.num_classes)

        def forward(self, data):
            data = data.unsqueeze(1 if config.batch_first else 0) if data.dim() == 2 else data
            _, state = self.rnn(data)
            last = state[0] if isinstance(state, tuple) else state
            ways = last[-2:] if config.bidirectional else last[-1:]
            return self.linear(ways.transpose(0, 1).flatten(1))

    return RecurrentLayers()


FAMILY = Family(
    name="rnn_head",
    config=RnnHeadConfig,
    table=TABLE,
    recognise=recognise,
    architectures=tuple(_ARCHITECTURES.values()),
    architecture=architecture,
    with_hyperparameters=lambda config, modules: dataclasses.replace(
        config, batch_first=batch_first(modules)
    ),
    module_faults=lambda config, infos: differing_modules(expected_modules(config), infos),
    remarks=_remarks,
    torch_module=torch_module,
    single_step=single_step,
)
