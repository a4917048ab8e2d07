"""Branches and loops, resolved while the graph is built: what decides them must be known."""

from collections.abc import Callable, Sequence

import torch

from converters.errors import TooLargeError


def _branch(builder, call, inputs, scope):
    """If: the branch that the known condition takes."""
    taken = bool(builder.known(inputs[0], call).reshape(-1)[0])
    branches = call["then_branch"], call["else_branch"]
    builder.unbuilt(branches[taken])
    return builder.subgraph(branches[not taken], scope)


def _constant(builder, info, value, dtype):
    """What a loop gives its body: of one axis where the body says so, as in onnxruntime."""
    rank = len(info.type.tensor_type.shape.dim)
    return builder.fresh("loop", torch.tensor([value] if rank else value, dtype=dtype), 0)


def _count(builder, iteration: int) -> None:
    if iteration >= builder.limits.nodes:
        raise TooLargeError(f"more than OnnxLimits.nodes = {builder.limits.nodes} loop iterations")


def _stacked(builder, call, parts: Sequence, axis: int = 0, reverse: bool = False):
    if not parts:
        raise call.refuse("an output collected over no iteration at all")
    ordered = list(parts)[::-1] if reverse else list(parts)
    return builder.apply(f"{call.operator} output", lambda *xs: torch.stack(xs, axis), ordered)


def _loop(builder, call, inputs, scope):
    """Loop: a known number of iterations, a condition that stays known, or both."""
    body, states = call["body"], list(inputs[2:])
    most = None if inputs[0] is None else int(builder.known(inputs[0], call).reshape(-1)[0])
    going = inputs[1] is None or bool(builder.known(inputs[1], call).reshape(-1)[0])
    collected: list[list] = [[] for _ in body.output[1 + len(states) :]]
    iteration = 0
    if not going or most is not None and most <= 0:
        builder.unbuilt(body)
    while going and (most is None or iteration < most):
        _count(builder, iteration)
        given = [
            _constant(builder, info, number, dtype)
            for info, number, dtype in zip(
                body.input, (iteration, going), (torch.int64, torch.bool), strict=False
            )
        ]
        condition, *results = builder.subgraph(body, scope, [*given, *states])
        going = bool(builder.known(condition, call).reshape(-1)[0])
        states = results[: len(states)]
        for parts, result in zip(collected, results[len(states) :], strict=True):
            parts.append(result)
        iteration += 1
    wanted = collected[: max(call.outputs - len(states), 0)]
    return [*states, *(_stacked(builder, call, parts) for parts in wanted)]


def _taken(builder, value, axis: int, index: int):
    return builder.apply("Scan input", lambda x: x.select(axis, index), [value])


def _scan_once(builder, call, scope, states: list, sequences: list):
    """One scan over sequences; the final states and the lists of what each step gave."""
    body, count = call["body"], len(sequences)
    axes = call["scan_input_axes"] or [0] * count
    backwards = call["scan_input_directions"] or call["directions"] or [0] * count
    length = sequences[0].data.shape[axes[0]]
    collected: list[list] = [[] for _ in body.output[len(states) :]]
    for step in range(length):
        _count(builder, step)
        slices = [
            _taken(builder, value, axis, length - 1 - step if back else step)
            for value, axis, back in zip(sequences, axes, backwards, strict=True)
        ]
        results = builder.subgraph(body, scope, [*states, *slices])
        states = results[: len(states)]
        for parts, result in zip(collected, results[len(states) :], strict=True):
            parts.append(result)
    return states, collected


def _scan(builder, call, inputs, scope):
    """Scan: unrolled over the length of its inputs; before opset 9 for each example alone."""
    if call.version < 9:
        return _batched_scan(builder, call, inputs, scope)
    split = len(inputs) - call["num_scan_inputs"]
    states, collected = _scan_once(builder, call, scope, inputs[:split], inputs[split:])
    axes = call["scan_output_axes"] or [0] * len(collected)
    backwards = call["scan_output_directions"] or [0] * len(collected)
    outputs = [
        _stacked(builder, call, parts, axis, bool(back))
        for parts, axis, back in zip(collected, axes, backwards, strict=True)
    ]
    return [*states, *outputs]


def _batched_scan(builder, call, inputs, scope):
    lengths, *inputs = inputs
    if lengths is not None:
        raise call.refuse("lengths per example")
    split = len(inputs) - call["num_scan_inputs"]
    finals: list[list] = []
    for example in range(inputs[split].data.shape[0]):
        own = [_taken(builder, value, 0, example) for value in inputs]
        states, collected = _scan_once(builder, call, scope, own[:split], own[split:])
        finals.append([*states, *(_stacked(builder, call, parts) for parts in collected)])
    return [_stacked(builder, call, parts) for parts in zip(*finals, strict=True)]


def _sequence_map(builder, call, inputs, scope):
    """SequenceMap: the body for each element; other sequences are walked alongside."""
    length = len(inputs[0].data)
    columns: list[list] = [[] for _ in call["body"].output]
    for index in range(length):
        own = [
            builder.apply("SequenceMap input", lambda xs, k=index: xs[k], [value])
            if isinstance(value.data, list)
            else value
            for value in inputs
        ]
        for column, result in zip(columns, builder.subgraph(call["body"], scope, own), strict=True):
            column.append(result)
    return [builder.apply("SequenceMap output", _listed, column) for column in columns]


def _listed(*tensors) -> list:
    return list(tensors)


SPECIAL: dict[tuple[str, str], Callable] = {
    ("", "If"): _branch,
    ("", "Loop"): _loop,
    ("", "Scan"): _scan,
    ("", "SequenceMap"): _sequence_map,
}
VERSIONS = {
    "If": (1, 11, 13, 16, 19, 21, 23, 24, 25),
    "Loop": (1, 11, 13, 16, 19, 21, 23, 24, 25),
    "Scan": (8, 9, 11, 16, 19, 21, 23, 24, 25),
    "SequenceMap": (17,),
}
