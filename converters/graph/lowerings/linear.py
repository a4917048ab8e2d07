"""Matrix products."""

import jax.numpy as jnp

from converters.graph.registry import lowers

for _names, _function in {
    ("aten.mm.default", "aten.bmm.default", "aten.matmul.default", "aten.mv.default"): jnp.matmul,
    ("aten.dot.default", "aten.vdot.default"): jnp.dot,
    ("aten.outer.default", "aten.ger.default"): jnp.outer,
    ("aten.kron.default",): jnp.kron,
    ("aten.linalg_inv.default", "aten.inverse.default"): jnp.linalg.inv,
    ("aten.linalg_det.default",): jnp.linalg.det,
}.items():
    lowers(*_names)(_function)


@lowers("aten.linear.default")
def linear(x, weight, bias):
    """x W^T + b."""
    y = jnp.matmul(x, weight.T)
    return y if bias is None else y + bias


def _plus(c, product, beta, alpha):
    product = product if alpha == 1 else alpha * product
    # torch ignores c for beta = 0, even where it is not a number.
    return product if beta == 0 else product + (c if beta == 1 else beta * c)


@lowers("aten.addmm.default", "aten.baddbmm.default", "aten.addmv.default", "aten.addmm.dtype")
def add_product(c, a, b, beta=1, alpha=1):
    """beta c + alpha a b."""
    return _plus(c, jnp.matmul(a, b), beta, alpha)


@lowers("aten.addbmm.default")
def add_summed_product(c, a, b, beta, alpha):
    """beta c + alpha times the sum of the products."""
    return _plus(c, jnp.matmul(a, b).sum(0), beta, alpha)


@lowers("aten.addr.default")
def add_outer(c, a, b, beta, alpha):
    """beta c + alpha times the outer product."""
    return _plus(c, jnp.outer(a, b), beta, alpha)


@lowers("aten.einsum.default")
def einsum(equation, operands, path=None):
    """Einstein's sum."""
    del path
    return jnp.einsum(equation, *operands)


@lowers("aten.bilinear.default")
def bilinear(a, b, weight, bias):
    """a W b + bias."""
    y = jnp.einsum("...i,oij,...j->...o", a, weight, b)
    return y if bias is None else y + bias


@lowers("aten.linalg_inv_ex.default", restriction="singular matrices are not reported")
def inverse(x, check_errors):
    """Inverse; whether there is one is not told."""
    del check_errors
    return jnp.linalg.inv(x), None


@lowers("aten._linalg_det.default", restriction="without the factors")
def determinant(x):
    """Determinant; the factors that torch returns as well are not computed."""
    return jnp.linalg.det(x), None, None
