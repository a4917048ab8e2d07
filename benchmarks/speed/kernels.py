"""Facts about XLA on CPU that the code is built around, measured where you run it.

    python -m benchmarks.speed.kernels [--out FILE]

1. A convolution over a map smaller than its kernel falls off a cliff; gathered patches do not.
2. In a compiled loop a network's convolutions are several times slower than called by the host.
3. A 1x1 convolution is faster as a matrix product, above all its gradient.
4. The gradient of a maximum over windows: XLA's own, a chain of selections, and ours, which does
   not compute what precedes the gradient (here a sine) once per tap.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from functools import partial, reduce
from pathlib import Path

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from benchmarks.provenance import RESULTS, provenance
from converters import families
from converters.families.layers import convolve
from converters.families.pooling import max_pool
from converters.families.windows import pad, windows
from converters.files import write_atomic
from converters.model import apply, params_of
from jaxtroj.cli.options import keep_compiled

_REPEATS, _STEPS = 5, 8


def main() -> int:
    """Measure, print and write; returns the exit status."""
    parser = argparse.ArgumentParser(description="XLA on CPU: what the kernels avoid.")
    parser.add_argument("--out", type=Path, default=RESULTS / "kernels.json")
    args = parser.parse_args()
    keep_compiled()
    result = {
        "provenance": provenance(),
        "milliseconds": {
            "3x3 over 2x2x512, batch 64": _convolutions((64, 2, 2, 512), (3, 3, 512, 512), 1),
            "1x1 over 14x14x1024, batch 8": _convolutions((8, 14, 14, 1024), (1, 1, 1024, 256), 0),
            "3x3 maximum over 112x112x64, batch 8": _pools(),
            "ResNet18, 20 input gradients of 64 px": _loops(),
        },
    }
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    print(json.dumps(result["milliseconds"], indent=1))
    return 0


def _convolutions(shape, kernel_shape, padding: int) -> dict[str, float]:
    """Forward and input gradient, by XLA's convolution and by ours."""
    x, kernel = jnp.ones(shape), jnp.ones(kernel_shape)

    def plain(x, kernel):
        pads = [(padding, padding)] * 2
        names = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(x, kernel, (1, 1), pads, dimension_numbers=names)

    def ours(x, kernel):
        return convolve(x, kernel, (1, 1), (padding, padding), 1)

    out = {}
    for name, way in (("lax", plain), ("ours", ours)):
        gradient = jax.grad(lambda x, k, f=way: (f(x, k) ** 2).sum())
        out[f"{name} forward"] = _milliseconds(jax.jit(way), x, kernel)
        out[f"{name} with gradient"] = _milliseconds(jax.jit(gradient), x, kernel)
    return out


def _pools() -> dict[str, float]:
    """Forward and gradient of a ResNet's pooling, whose gradient is computed from another."""
    x = jax.random.normal(jax.random.key(0), (8, 112, 112, 64))
    gradient = jax.random.normal(jax.random.key(1), (8, 56, 56, 64))
    window, stride, sides = (1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (1, 1), (0, 0))

    def chain(x):
        taps = windows(pad(x, ((1, 1), (1, 1)), -jnp.inf), (3, 3), (2, 2))
        return reduce(lambda best, tap: jnp.where(tap > best, tap, best), taps)

    ways = {
        "lax": lambda x: lax.reduce_window(x, -jnp.inf, lax.max, window, stride, sides),
        "chain": chain,
        "ours": lambda x: max_pool(x, 3, 2, 1),
    }

    def both(way, x, gradient):
        y, pull = jax.vjp(way, x)
        return y, pull(jnp.sin(gradient))[0]

    return {
        f"{name} with gradient": _milliseconds(jax.jit(partial(both, way)), x, gradient)
        for name, way in ways.items()
    }


def _loops() -> dict[str, float]:
    """One gradient step: called from the host, and as one of several in a compiled loop."""
    config, module = families.build("resnet18", 5, nnx.Rngs(0))
    params = {path: jnp.asarray(value) for path, value in params_of(module).items()}
    images = jnp.ones((20, 64, 64, 3))

    def step(params, x):
        return x - 0.1 * jax.grad(lambda x: apply(config, params, x)[:, 0].sum())(x)

    def looped(params, x):
        return lax.fori_loop(0, _STEPS, lambda _, x: step(params, x), x)

    return {
        "from the host": _milliseconds(jax.jit(step), params, images),
        "in a compiled loop": _milliseconds(jax.jit(looped), params, images) / _STEPS,
    }


def _milliseconds(function: Callable, *arguments) -> float:
    """Least time of several warm, blocked calls."""
    call = partial(function, *arguments)
    jax.block_until_ready(call())
    times = []
    for _ in range(_REPEATS):
        started = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - started)
    return round(min(times) * 1e3, 2)


if __name__ == "__main__":
    sys.exit(main())
