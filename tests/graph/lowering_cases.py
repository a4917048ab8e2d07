"""Cases of the lowerings: functions of torch and the shapes of their inputs, by family."""

import numpy as np
import torch
import torch.nn.functional as F

from tests.graph.resizing_cases import IMAGE, RESIZING

# A case is a function and the shapes of its inputs. Values are spread over [-2, 2] without ties;
# a tuple (shape, low, high) asks for another range, an array is taken as it is.
UNARY = (
    "abs asin asinh atan ceil cos cosh erf erfc exp exp2 expm1 floor neg round sgn sign sin sinc "
    "sinh square tan tanh trunc sigmoid deg2rad relu selu isnan isinf isfinite frac logical_not"
).split()
POSITIVE = "log log10 log1p log2 rsqrt sqrt reciprocal lgamma".split()
BINARY = (
    "add sub mul div atan2 maximum minimum fmax fmin hypot copysign logaddexp eq ne lt le gt ge "
    "logical_and logical_or logical_xor remainder fmod"
).split()
WHOLE = "bitwise_and bitwise_or bitwise_xor gcd remainder fmod floor_divide add mul".split()
INTS = np.arange(-6, 6).reshape(3, 4)
FEW = np.array([[2, 1, 2, 3], [1, 1, 2, 2], [3, -2, 1, 4]])


def _named(names, *inputs):
    return {name: (getattr(torch, name), *inputs) for name in names}


def _ints(*values):
    return np.array(values)


def _recurrent(kind: str, *sizes, **options):
    """A recurrent layer as a function that returns all its results."""
    torch.manual_seed(0)
    layer = getattr(torch.nn, kind)(*sizes, **options).double().eval().requires_grad_(False)

    def function(x):
        y, last = layer(x)
        return y, *(last if isinstance(last, tuple) else (last,))

    return function


def _holed(*shape):
    """Numbers with NaN among them."""
    values = np.random.default_rng(0).normal(size=shape)
    return np.where(np.random.default_rng(1).random(shape) < 0.15, np.nan, values)


NAN = float("nan")
AFAR = torch.full((4,), 1e17).double()
CASES = {
    "unary": {
        **_named(UNARY, (3, 4)),
        **_named(POSITIVE, ((3, 4), 0.3, 3.0)),
        "digamma": (lambda x: torch.digamma(x.detach()), (3, 4)),
        "acos": (torch.acos, ((3, 4), -0.9, 0.9)),
        "atanh": (torch.atanh, ((3, 4), -0.9, 0.9)),
        "acosh": (torch.acosh, ((3, 4), 1.1, 3.0)),
        "erfinv": (torch.erfinv, ((3, 4), -0.9, 0.9)),
        "logit": (lambda x: torch.logit(x, 0.2), ((3, 4), 0.1, 0.9)),
        "bitwise_not": (torch.bitwise_not, INTS),
        "whole abs": (torch.abs, INTS),
        "whole sqrt": (torch.sqrt, np.abs(INTS)),
        "decimals": (lambda x: torch.round(x, decimals=2), (3, 4)),
        "nan_to_num": (lambda x: torch.nan_to_num(x / 0.0, 1.0, 2.0, 3.0), (3, 4)),
    },
    "binary": {
        **_named(BINARY, (3, 4), (3, 1)),
        **{f"whole {name}": (getattr(torch, name), INTS, FEW) for name in WHOLE},
        "floor_divide": (lambda x, y: x.detach() // y.detach(), (3, 4), (4,)),
        "whole true division": (torch.div, INTS, FEW),
        "pow": (torch.pow, ((3, 4), 0.3, 2.0), (4,)),
        "pow of a number": (lambda x: 2.0**x, (3, 4)),
        "whole powers": (lambda x: x.pow(x.flip(0) - 2), np.arange(-3, 4)),
        "square": (lambda x: x**2, (3, 4)),
        "cube": (lambda x: x**3.0, (3, 4)),
        "root": (lambda x: x**0.5, ((3, 4), 0.3, 2.0)),
        "inverse cube": (lambda x: x**-3, ((3, 4), 0.3, 2.0)),
        "rsub": (lambda x: 3 - x, (3, 4)),
        "alpha": (lambda x, y: torch.add(x, y, alpha=2) + torch.sub(x, y, alpha=3), (3, 4), (4,)),
        "floor": (lambda x, y: torch.div(x, y, rounding_mode="floor"), (3, 4), (4,)),
        "trunc": (lambda x, y: torch.div(x, y, rounding_mode="trunc"), (3, 4), (4,)),
        "whole trunc": (lambda x, y: torch.div(x, y, rounding_mode="trunc"), INTS, FEW),
        "addcmul": (lambda x, y, z: torch.addcmul(x, y, z, value=2), (3, 4), (4,), (4,)),
        "addcdiv": (lambda x, y, z: torch.addcdiv(x, y, z, value=2), (3, 4), (4,), (4,)),
        "lerp": (lambda x, y, z: torch.lerp(x, y, z) + torch.lerp(x, y, 0.3), (3,), (3,), (3,)),
        "xlogy": (torch.xlogy, (3, 4), ((3, 4), 0.3, 2.0)),
        "bits of another type": (
            lambda x: (x.to(torch.int8).view(torch.uint8), (x > 0).view(torch.uint8)),
            INTS,
        ),
        "higher bits are cut off": (
            lambda x: [x.to(kind) for kind in (torch.uint8, torch.int8, torch.uint16, torch.int16)],
            ((8, 8), -70_000.0, 70_000.0),
        ),
        "shifts by a number": (lambda x: [(x << 2), (x >> 1), (x >> 70)], INTS),
        "whole powers of one below 0": (lambda x: x ** torch.tensor(-1), np.array([1, -1, 2])),
        "shifts": (lambda x, y: (x << y) + (x >> y), np.abs(INTS), np.abs(FEW)),
        "mixed types": (lambda x, y: x * y + 0.5, INTS, (3, 4)),
        "where": (lambda x, y: torch.where(x > 0, x, y), (3, 4), (4,)),
        "where number": (lambda x: torch.where(x > 0, x, 2.0), (3, 4)),
        "masked_fill": (lambda x: x.masked_fill(x > 1, 7.0), (3, 4)),
        "clamp": (lambda x: x.clamp(-1, 1) + x.clamp(min=0) + x.clamp(max=0), (3, 4)),
        "clamp by tensors": (lambda x, y: torch.clamp(x, y, y + 1), (3, 4), (4,)),
        "bytes beside one number": (
            lambda x: [
                part
                for number in (torch.tensor(300), torch.tensor(-1), torch.tensor([300]))
                for compare in (torch.lt, torch.ge, torch.eq, torch.ne)
                for part in (compare(x.to(torch.uint8), number), compare(number, x.to(torch.uint8)))
            ],
            np.arange(12).reshape(3, 4) * 20,
        ),
        "bytes with one number": (
            lambda x: [
                getattr(torch, name)(x.to(torch.uint8), torch.tensor(300))
                for name in "maximum minimum fmax gcd remainder fmod floor_divide true_divide "
                "clamp add mul pow bitwise_and".split()
            ],
            np.arange(12).reshape(3, 4) * 20,
        ),
        "isin": (lambda x: torch.isin(x, torch.tensor([1, 2])), INTS),
        "equal maxima": (torch.maximum, np.array([1.0, 2]), np.array([1.0, 3])),
    },
    "activations": {
        name: (getattr(F, name), (3, 4))
        for name in "elu celu selu gelu silu mish hardswish softplus softsign logsigmoid relu6 "
        "tanhshrink softshrink hardshrink leaky_relu hardtanh".split()
    }
    | {
        # torch has 1/6 in single precision in this gradient, so the input stays outside.
        "hardsigmoid": (F.hardsigmoid, ((3, 4), 4.0, 6.0)),
        "relu at zero": (F.relu, np.array([-1.0, 0, 1])),
        "hardtanh at its bounds": (F.hardtanh, np.array([-1.0, 0, 1])),
        "hardswish at its bounds": (F.hardswish, np.array([-4.0, -3, 0, 3, 4])),
        "deviation of what hardswish ends": (lambda x: F.hardswish(x).std(), -3.0 - np.arange(4)),
        "gelu tanh": (lambda x: F.gelu(x, approximate="tanh"), (3, 4)),
        # 1 + erf is 0 there, erfc is not.
        "gelu far below 0": (lambda x: F.gelu(x) * 1e20, ((3, 4), -12.0, -9.0)),
        "softplus beta": (lambda x: F.softplus(x, 3.0, 2.0), (3, 4)),
        "threshold": (lambda x: F.threshold(x, 0.5, 0.1), (3, 4)),
        "prelu": (F.prelu, (2, 3, 4), (3,)),
        "rrelu": (lambda x: F.rrelu(x), (3, 4)),
        "glu": (lambda x: F.glu(x, 1), (3, 4)),
        "softmax": (lambda x: F.softmax(x, 1) + F.softmin(x, 0), (3, 4)),
        "log_softmax": (lambda x: F.log_softmax(x, 1), (3, 4)),
        "dropout": (lambda x: F.dropout(x, 0.5, False), (3, 4)),
    },
    "not a number": {
        # Of single elements values only: torch's gradient where there is no number depends on how
        # many elements there are.
        **{
            name: (lambda x, name=name: getattr(F, name)(x.detach()), _holed(3, 7))
            for name in "hardtanh relu6 hardsigmoid hardswish relu leaky_relu elu softplus "
            "softshrink hardshrink".split()
        },
        "infinities": (lambda x: F.hardswish(x.detach()), np.array([-np.inf, -4, np.inf, 4])),
        "steps": (lambda x: torch.heaviside(x.detach(), x.detach() + 7), _holed(3, 7)),
        "sign": (lambda x: torch.sign(x) + torch.sgn(x), _holed(3, 7)),
        "threshold": (lambda x: F.threshold(x.detach(), 0.5, 0.1), _holed(3, 7)),
        "clamp": (lambda x: x.detach().clamp(-1, 1) + x.detach().clamp(min=0), _holed(3, 7)),
        "bounds": (lambda x: (x.clamp(NAN, 1), x.clamp(0, NAN), x.clamp(min=NAN)), (3, 4)),
        "bounds of hardtanh": (lambda x: F.hardtanh(x.detach(), NAN, 1.0), (3, 4)),
        "median": (lambda x: (*x.median(1), *x.median(0, True)), _holed(5, 7)),
        "median of all": (lambda x: x.detach().median(), _holed(5, 7)),
        "kthvalue": (lambda x: x.kthvalue(2, 1), _holed(5, 7)),
        "running": (lambda x: (*torch.cummax(x, 1), *torch.cummin(x, 0)), _holed(5, 7)),
        "extremes": (lambda x: (*x.max(1), *x.min(0)), _holed(5, 7)),
        "amax": (lambda x: (x.detach().amax(1), x.detach().amin()), _holed(5, 7)),
        "small windows": (lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), _holed(*IMAGE)),
        "windows of pairs": (lambda x: F.max_pool2d(x, 2), _holed(*IMAGE)),
        "large windows": (lambda x: F.max_pool2d(x, 4, 3, return_indices=True), _holed(*IMAGE)),
        "lines": (lambda x: F.max_pool1d(x, 3, 2, 1), _holed(2, 4, 9)),
        "volumes": (lambda x: F.max_pool3d(x, 2), _holed(1, 2, 4, 5, 3)),
        "norms": (
            lambda x: [x.detach().norm(p=p, dim=1) for p in (1, 2, 3, 0.5, -1, -2)],
            _holed(5, 7),
        ),
        "adaptive means": (
            lambda x: F.adaptive_avg_pool2d(x.detach(), (3, 2)),
            _holed(1, 2, 7, 7),
        ),
        "adaptive windows": (lambda x: F.adaptive_max_pool2d(x.detach(), (3, 2)), _holed(*IMAGE)),
    },
    "reductions": {
        "sum": (lambda x: x.sum((0, 2)) + x.sum() + x.sum(-1).sum(), (2, 3, 4)),
        "whole sum": (lambda x: x.to(torch.int8).sum(1), INTS),
        "mean": (lambda x: x.mean(1, True) + x.mean(), (2, 3, 4)),
        "amax": (lambda x: x.amax((0, 2)) + x.amin((0, 2)), (2, 3, 4)),
        "amax of equals": (lambda x: x.amax(0), np.array([1.0, 3, 3])),
        "max": (lambda x: (x.max(), x.min(), *x.max(1), *x.min(0, True)), (3, 4)),
        "max of equals": (lambda x: x.max(0).values, np.array([1.0, 3, 3])),
        "argmax": (lambda x: (x.argmax(), x.argmax(1), x.argmin(0, True)), (3, 4)),
        "prod": (lambda x: (x.prod(), x.prod(1)), (3, 4)),
        "prod with a zero": (lambda x: x.prod(0), np.array([1.0, 0, 3])),
        "logsumexp": (lambda x: x.logsumexp((0, 1)), (2, 3, 4)),
        "all any": (lambda x: (x.all(), x.any(1), x.all(0, True)), INTS),
        "count": (lambda x: x.count_nonzero(1), INTS),
        "var": (lambda x: (x.var(), x.std(1), x.var((0, 2), correction=0)), (2, 3, 4)),
        "var_mean": (lambda x: torch.var_mean(x, 1, keepdim=True), (3, 4)),
        "norms": (lambda x: [x.norm(p=p, dim=1) for p in (0, 1, 2, 3, 2.5, torch.inf)], (3, 4)),
        "deviation of equals": (lambda x: (x.std(1), *torch.std_mean(x, (0, 1))), np.ones((3, 4))),
        "norm at zero": (lambda x: torch.linalg.vector_norm(x), np.zeros(3)),
        "cumsum": (lambda x: (x.cumsum(1), x.cumprod(0), x.logcumsumexp(1)), (3, 4)),
        "cummax": (lambda x: (*x.cummax(1), *x.cummin(0)), (3, 4)),
        "sort": (lambda x: (*x.sort(1, True), *torch.sort(x, dim=0, stable=True)), (3, 4)),
        "topk": (lambda x: (*x.topk(2), *x.topk(2, 0, largest=False)), (3, 4)),
        "median": (lambda x: (*x.median(1), x.median(), *x.kthvalue(2, 0)), (3, 4)),
        "argsort": (lambda x: x.argsort(1, True), (3, 4)),
        "trace": (torch.trace, (3, 4)),
        "image means": (lambda x: F.relu(F.avg_pool2d(x, 1)).mean((2, 3)), IMAGE),
        "image channel means": (lambda x: F.avg_pool2d(x, 1).mean(1, True), IMAGE),
    },
    "products": {
        "mm": (torch.mm, (3, 4), (4, 2)),
        "bmm": (torch.bmm, (2, 3, 4), (2, 4, 2)),
        "matmul": (torch.matmul, (2, 1, 3, 4), (3, 4, 2)),
        "vectors": (lambda x, y: x @ y, (4,), (4,)),
        "matrix and vector": (lambda x, y: x @ y, (3, 4), (4,)),
        "addmm": (lambda x, y, z: torch.addmm(x, y, z, beta=2, alpha=3), (2,), (3, 4), (4, 2)),
        "baddbmm": (
            lambda x, y, z: torch.baddbmm(x, y, z, beta=0),
            (2, 3, 2),
            (2, 3, 4),
            (2, 4, 2),
        ),
        "linear": (F.linear, (2, 3, 4), (5, 4), (5,)),
        "einsum": (lambda x, y: torch.einsum("bij,bkj->bik", x, y), (2, 3, 4), (2, 5, 4)),
        "outer": (torch.outer, (3,), (4,)),
        "bilinear": (F.bilinear, (2, 3), (2, 4), (5, 3, 4), (5,)),
        "inverse": (lambda x: torch.linalg.inv(x + 5 * torch.eye(3)), (3, 3)),
        "determinant": (torch.linalg.det, (3, 3)),
        "attention": (F.scaled_dot_product_attention, *3 * [(2, 2, 3, 4)]),
        "causal attention": (
            lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True, scale=0.3),
            (2, 2, 3, 4),
        ),
        "masked attention": (
            lambda q, m: F.scaled_dot_product_attention(q, q, q, m),
            (2, 3, 4),
            (3, 3),
        ),
        "attention that sees nothing": (
            lambda q: F.scaled_dot_product_attention(
                q, q, q, torch.eye(3).bool() & (q[0] < 9).all()
            ),
            (2, 3, 4),
        ),
        "grouped attention": (
            lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True),
            (1, 4, 3, 4),
            (1, 2, 3, 4),
        ),
    },
    "convolutions": {
        "1d": (lambda x, w: F.conv1d(x, w, None, 2, 1, 2), (2, 4, 9), (3, 4, 3)),
        "2d": (F.conv2d, IMAGE, (5, 4, 3, 2), (5,)),
        "2d strided": (lambda x, w: F.conv2d(x, w, None, (2, 3), (1, 2)), IMAGE, (5, 4, 3, 3)),
        "2d same": (lambda x, w: F.conv2d(x, w, None, 1, "same", 2), IMAGE, (5, 4, 2, 3)),
        "2d dilated": (lambda x, w: F.conv2d(x, w, None, 1, 1, 2), IMAGE, (5, 4, 3, 3)),
        "2d pointwise": (lambda x, w: F.conv2d(x, w, None, 2), IMAGE, (5, 4, 1, 1)),
        "2d grouped": (lambda x, w: F.conv2d(x, w, groups=2), IMAGE, (6, 2, 3, 3)),
        "2d by channel": (lambda x, w: F.conv2d(x, w, None, 2, 1, groups=4), IMAGE, (8, 1, 3, 3)),
        "2d single": (F.conv2d, (4, 7, 6), (5, 4, 3, 3), (5,)),
        "3d": (lambda x, w: F.conv3d(x, w, None, 1, 1), (1, 2, 4, 5, 3), (3, 2, 3, 3, 3)),
        "transposed 1d": (
            lambda x, w: F.conv_transpose1d(x, w, None, 2, 1, 1),
            (2, 4, 5),
            (4, 3, 3),
        ),
        "transposed 2d": (
            lambda x, w, b: F.conv_transpose2d(x, w, b, (2, 3), (1, 0), (1, 2), 2, (1, 2)),
            IMAGE,
            (4, 3, 3, 2),
            (6,),
        ),
        "transposed 3d": (
            lambda x, w: F.conv_transpose3d(x, w, None, 2),
            (1, 2, 3, 2, 2),
            (2, 3, 2, 2, 2),
        ),
        "im2col": (lambda x: F.unfold(x, (3, 2), 1, (1, 0), (2, 1)), IMAGE),
        "col2im": (lambda x: F.fold(x, (7, 6), (3, 2), 1, (1, 0), (2, 1)), (2, 24, 20)),
    },
    "recurrent": {
        "lstm": (_recurrent("LSTM", 3, 4, 2, bidirectional=True), (5, 2, 3)),
        "lstm projected": (_recurrent("LSTM", 3, 4, proj_size=2, batch_first=True), (2, 5, 3)),
        "lstm single": (_recurrent("LSTM", 3, 4, bias=False), (5, 3)),
        "gru": (_recurrent("GRU", 3, 4, 2, bidirectional=True, batch_first=True), (2, 5, 3)),
        "tanh": (_recurrent("RNN", 3, 4, 2), (5, 2, 3)),
        "relu": (_recurrent("RNN", 3, 4, nonlinearity="relu", bidirectional=True), (5, 2, 3)),
    },
    "pools": {
        "max 1d": (lambda x: F.max_pool1d(x, 3, 2, 1), (2, 4, 9)),
        "max 2d": (lambda x: F.max_pool2d(x, 3, 2, 1), IMAGE),
        "max 2d ceil": (lambda x: F.max_pool2d(x, (3, 2), 2, ceil_mode=True), IMAGE),
        "max 2d dilated": (lambda x: F.max_pool2d(x, 2, 1, 1, 2), IMAGE),
        "max 2d places": (lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), IMAGE),
        "max 2d equal": (lambda x: F.max_pool2d(x, 2, 1), np.ones((1, 1, 3, 3))),
        "max 2d single": (lambda x: F.max_pool2d(x, 2), (4, 7, 6)),
        "max 3d": (lambda x: F.max_pool3d(x, 2, 1, return_indices=True), (1, 2, 3, 4, 3)),
        "avg 1d": (lambda x: F.avg_pool1d(x, 3, 2, 1), (2, 4, 9)),
        "avg 2d": (lambda x: F.avg_pool2d(x, 3, 2, 1), IMAGE),
        "avg 2d ceil": (lambda x: F.avg_pool2d(x, 3, 2, 1, True), IMAGE),
        "avg 2d uncounted": (lambda x: F.avg_pool2d(x, 3, 2, 1, True, False), IMAGE),
        "avg 2d divisor": (lambda x: F.avg_pool2d(x, 2, divisor_override=3), IMAGE),
        "avg 3d": (lambda x: F.avg_pool3d(x, 2, 1, 1, False, False), (1, 2, 3, 4, 3)),
        "lp 2d": (lambda x: F.lp_pool2d(x, 2, 2), ((2, 4, 6, 6), 0.1, 2.0)),
        "adaptive avg": (lambda x: F.adaptive_avg_pool2d(x, (3, 2)), IMAGE),
        "adaptive avg up": (lambda x: F.adaptive_avg_pool2d(x, (9, None)), IMAGE),
        "adaptive avg 1": (lambda x: F.adaptive_avg_pool2d(x, 1), IMAGE),
        "adaptive avg 1d": (lambda x: F.adaptive_avg_pool1d(x, 4), (2, 4, 9)),
        "adaptive avg 3d": (lambda x: F.adaptive_avg_pool3d(x, 2), (1, 2, 3, 4, 3)),
        "adaptive max": (lambda x: F.adaptive_max_pool2d(x, (3, 4), return_indices=True), IMAGE),
        "adaptive max 1d": (lambda x: F.adaptive_max_pool1d(x, 4), (2, 4, 9)),
        "adaptive max 3d": (lambda x: F.adaptive_max_pool3d(x, 2, True), (1, 2, 3, 4, 3)),
    },
    "norms": {
        "batch": (
            lambda x, w, b: F.batch_norm(
                x, torch.ones(4).double(), torch.full((4,), 2.0).double(), w, b
            ),
            IMAGE,
            (4,),
            (4,),
        ),
        "batch of vectors": (
            lambda x: F.batch_norm(x, torch.ones(4).double(), torch.full((4,), 2.0).double()),
            (5, 4),
        ),
        # A mean and a bias that round x away, unless taken from each other first, as torch does
        # where x is contiguous.
        "batch far from 0": (
            lambda x: [
                F.batch_norm(part, AFAR, torch.ones(4).double(), None, AFAR, eps=0.0)
                for part in (x, x.mean((2, 3)))
            ],
            IMAGE,
        ),
        "instance": (lambda x, w, b: F.instance_norm(x, weight=w, bias=b), IMAGE, (4,), (4,)),
        "layer": (lambda x, w, b: F.layer_norm(x, (3, 4), w, b), (2, 3, 4), (3, 4), (3, 4)),
        "layer plain": (lambda x: F.layer_norm(x, (4,)), (2, 3, 4)),
        "group": (lambda x, w, b: F.group_norm(x, 2, w, b), IMAGE, (4,), (4,)),
        "rms": (lambda x, w: F.rms_norm(x, (4,), w), (2, 3, 4), (4,)),
        "local response": (lambda x: F.local_response_norm(x, 3), IMAGE),
        "unit length": (lambda x: F.normalize(x, dim=1), (3, 4)),
        "cosine": (F.cosine_similarity, (3, 4), (3, 4)),
    },
    "shapes": {
        "views": (
            lambda x: (x.view(4, 3), x.reshape(-1), x.flatten(1), x.unflatten(0, (1, 3))),
            (3, 4),
        ),
        "orders": (
            lambda x: (x.permute(2, 0, 1), x.transpose(0, 2), x.movedim(0, -1), x.mT),
            (2, 3, 4),
        ),
        "expand": (lambda x: (x.expand(2, -1, 4), x.repeat(2, 1, 2), x.tile(2)), (3, 1)),
        "squeeze": (
            lambda x: (x.squeeze(), x.squeeze(0), x.squeeze((0, 2)), x.unsqueeze(-1)),
            (1, 3, 1),
        ),
        "joins": (
            lambda x, y: (torch.cat([x, y], 1), torch.stack([x, x], -1), torch.hstack([x, y])),
            (3, 4),
            (3, 2),
        ),
        "cuts": (
            lambda x: (*x.split(2, 1), *x.split([1, 3], 1), *x.chunk(3, 1), *x.unbind(0)),
            (3, 4),
        ),
        "uneven cuts": (lambda x: torch.tensor_split(x, 3, 1), (3, 4)),
        "turns": (lambda x: (x.flip(0, 1), x.roll(1, 1), x.roll(5), x.rot90()), (3, 4)),
        "interleave": (lambda x: x.repeat_interleave(2, 1), (3, 4)),
        "pixels": (lambda x: F.pixel_unshuffle(F.pixel_shuffle(x, 2) * 2, 2), (2, 8, 3, 2)),
        "channels": (lambda x: F.channel_shuffle(x, 2), IMAGE),
        "image joins": (
            lambda x: torch.cat([F.avg_pool2d(x, 1), x], 1)[:, 1:6, ::2].chunk(2, 3)[1],
            IMAGE,
        ),
        "image order": (
            lambda x: F.avg_pool2d(x, 1).permute(0, 2, 3, 1).permute(0, 3, 1, 2) * 2,
            IMAGE,
        ),
        "image select": (lambda x: (F.avg_pool2d(x, 1)[:, 1], F.avg_pool2d(x, 1)[..., 1]), IMAGE),
        "image and vector": (lambda x, y: F.avg_pool2d(x, 1) * y + y[:3].sum(), IMAGE, (6,)),
        "image and scale": (lambda x, y: F.avg_pool2d(x, 1) * y[:, None, None], IMAGE, (4,)),
        "diagonals": (
            lambda x: (x.diagonal(1), torch.diag_embed(x, -1), x.tril(1), x.triu(-1)),
            (3, 4),
        ),
        "windows": (lambda x: x.unfold(1, 3, 2), (3, 8)),
        "slices": (lambda x: (x[1:, ::2], x[..., -1], x[:, 5:9], x[-1], x.narrow(1, 1, 2)), (3, 4)),
        "scatters": (
            lambda x, y: (x.slice_scatter(y, 1, 0, 4, 2), x.select_scatter(y[:, 0], 1, 2)),
            (3, 4),
            (3, 2),
        ),
        "constant pad": (lambda x: (F.pad(x, (1, 2, -1, 1), value=3.0), F.pad(x, (1, 1))), IMAGE),
        "image pad": (lambda x: F.pad(F.avg_pool2d(x, 1), (1, 2, 0, 1)), IMAGE),
        "reflect": (lambda x: F.pad(x, (1, 2, 0, 3), "reflect"), IMAGE),
        "replicate": (lambda x: F.pad(x, (1, 2, 0, 3), "replicate"), IMAGE),
        "around": (lambda x: F.pad(x, (1, 2, 0, 3), "circular"), IMAGE),
    },
    "places": {
        "index": (lambda x: (x[[0, 2, 0]], x[:, [1, 3]], x[[0, 1], [2, 3]]), (3, 4)),
        "index by input": (lambda x, i: (x[i], x[:, i]), (3, 4), _ints(2, 0, -1)),
        "constant mask": (lambda x: x[torch.tensor([True, False, True])], (3, 4)),
        "index_select": (lambda x, i: x.index_select(1, i), (3, 4), _ints(2, 0, 3)),
        "gather": (lambda x, i: x.gather(1, i), (3, 4), np.array([[3, 0], [1, 1]])),
        "take": (
            lambda x, i: (x.take(i), torch.take_along_dim(x, i[None], 1)),
            (3, 4),
            _ints(2, 0),
        ),
        "index_put": (lambda x, y, i: x.index_put((i,), y), (3, 4), (4,), _ints(2, 0)),
        "index_put adding": (lambda x, y, i: x.index_put((i,), y, True), (3, 4), (4,), _ints(2, 2)),
        "masked put": (lambda x: x.index_put((x > 0,), torch.tensor(5.0).double()), (3, 4)),
        "index_add": (lambda x, y, i: x.index_add(0, i, y, alpha=2), (3, 4), (2, 4), _ints(2, 2)),
        "index_copy": (lambda x, y, i: x.index_copy(0, i, y), (3, 4), (2, 4), _ints(2, 0)),
        "index_fill": (lambda x, i: x.index_fill(0, i, 5.0), (3, 4), _ints(2, 0)),
        "scatter": (lambda x, y, i: x.scatter(1, i, y), (3, 4), (2, 2), np.array([[3, 0], [1, 2]])),
        "scatter value": (lambda x, i: x.scatter(1, i, 9.0), (3, 4), np.array([[3, 0], [1, 2]])),
        "scatter_add": (
            lambda x, y, i: x.scatter_add(1, i, y),
            (3, 4),
            (2, 2),
            np.array([[3, 3], [1, 2]]),
        ),
        "scatter_reduce": (
            lambda x, y, i: [x.scatter_reduce(1, i, y, r) for r in ("sum", "amax", "amin")],
            (3, 4),
            (2, 2),
            np.array([[3, 0], [1, 2]]),
        ),
        "embedding": (lambda i, w: F.embedding(i, w), np.array([[0, 2], [1, 1]]), (3, 4)),
        "one_hot": (lambda i: F.one_hot(i, 4), _ints(2, 0)),
        "searched": (lambda x: torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0]).double()), (3, 4)),
        "new": (
            lambda x: (
                torch.full_like(x, 2.0) * x,
                x.new_zeros(3, 4) + x,
                torch.arange(4) * x,
                torch.zeros_like(x) + x,
                x.to(torch.float32).to(torch.float64),
                (x * 100).to(torch.int32),
                x.bool(),
                torch.full((2,), x.shape[0]) + x[0, 0],
            ),
            (3, 4),
        ),
    },
    "resizing": RESIZING,
}
