"""Which of torch's operators a program from a file may run: those we know, 1,100 of 3,100.

Some kernels take what they are given on trust: indices, offsets and packed weights that a hostile
file gets wrong. So a program may call what has a lowering, what torch puts together of that, and
few others that make or look at values. The rest is refused before anything of it runs.
"""

from collections.abc import Iterable
from functools import cache

import torch
from torch._decomp import decomposition_table

from converters.graph import registry
from converters.graph.light_mode import LightMode

# Made of other calls in C++, of which `KernelGuard` sees each one.
_COMPOSED = frozenset(
    """
    _batch_norm_impl_index _cast_Byte _cast_Char _cast_Double _cast_Float _cast_Half _cast_Int
    _cast_Long _cast_Short _convolution_mode _dim_arange _pad_enum
    _scaled_dot_product_attention_math _shape_as_tensor _weight_norm arccos arccosh arcsin arcsinh
    arctan arctan2 arctanh argwhere atleast_1d atleast_2d atleast_3d broadcast_tensors
    cartesian_prod cdist chain_matmul clip column_stack combinations concatenate conj corrcoef
    cosine_similarity cov cross det diag diagflat diff divide dsplit dstack feature_alpha_dropout
    fill_diagonal fix fliplr flipud float_power frobenius_norm gradient greater greater_equal
    gru_cell hsplit hstack inner isreal kl_div l1_loss less less_equal linalg_diagonal
    linalg_matmul linalg_matrix_norm linalg_matrix_power linalg_multi_dot linalg_norm
    linalg_vander linalg_vecdot lstm_cell matrix_power max min moveaxis msort multiply nanmean
    nanquantile narrow negative norm_except_dim not_equal nuclear_norm quantile ravel real
    repeat_interleave reshape_as rnn_relu_cell rnn_tanh_cell row_stack rrelu special_digamma
    special_erf special_erfc special_erfinv special_exp2 special_expit special_expm1
    special_gammainc special_gammaincc special_gammaln special_i0 special_log1p
    special_log_softmax special_logit special_logsumexp special_multigammaln special_polygamma
    special_psi special_round special_sinc special_softmax special_xlogy subtract sum_to_size
    swapdims tensor_split tensordot thnn_conv2d trapezoid trapz true_divide unsafe_chunk vander
    view_as vsplit vstack
    """.split()
)
# They say something of a tensor, claim something of a value, or make values that no image decides;
# of those that are drawn the refusal says more later.
_ASIDE = frozenset(
    """
    _assert_async _assert_scalar _assert_tensor_metadata _functional_assert_async
    _functional_assert_scalar _local_scalar_dense _trilinear _unique2 allclose as_strided
    bartlett_window bincount blackman_window dim empty_permuted equal hamming_window is_conj
    is_contiguous is_floating_point is_neg is_nonzero is_same_size is_signed kaiser_window
    masked_select mkldnn_rnn_layer nonzero nonzero_numpy numel polar rand rand_like randint
    randint_like randn randn_like randperm range result_type searchsorted size storage_offset
    stride sym_constrain_range sym_constrain_range_for_size sym_is_contiguous sym_numel sym_size
    sym_storage_offset sym_stride unique_dim unsafe_split view_as_complex view_as_real
    """.split()
)
_DEVICE = "prim.device.default"


class KernelGuard(LightMode):
    """While active, a call of a kernel that is not known ends in UnsupportedOperatorError."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        require_known([func])
        return func(*args, **(kwargs or {}))


def require_known(calls: Iterable[torch._ops.OpOverload]) -> None:
    """Refuse operators that a program from a file may not run.

    Raises:
        UnsupportedOperatorError: for the first that has no lowering, naming the others.
    """
    unknown = {str(func): "" for func in calls if not may_run(func)}
    if unknown:
        raise registry.missing(unknown)


@cache
def may_run(func: torch._ops.OpOverload) -> bool:
    """Whether the operator is one that we lower, or one that torch makes of such ones."""
    if registry.is_supported(str(func)) or str(func) == _DEVICE:
        return True
    if func.namespace != "aten" or _writes_into_given(func):
        return False
    packet = func.overloadpacket.__name__
    plain = packet.removesuffix("_")
    if plain in _lowered_packets() or plain in _COMPOSED | _ASIDE:
        return True
    return func in decomposition_table and not packet.endswith("_backward")


def _writes_into_given(func: torch._ops.OpOverload) -> bool:
    """Whether it fills a tensor that it is given for that, as those called "out" do."""
    return any(
        one.kwarg_only and one.alias_info is not None and one.alias_info.is_write
        for one in func._schema.arguments
    )


@cache
def _lowered_packets() -> frozenset[str]:
    """Names of operators of which some form has a lowering."""
    return frozenset(name.split(".")[1] for name in registry.supported_operators())
