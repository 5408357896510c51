"""Programs of `mil.py` that compute element by element, reduce, or make tensors.

What they give is eager PyTorch's. Where PyTorch has no such operation it is written out from Core ML's documents
with PyTorch's own functions; the comments say where.
"""

import torch
from coremltools.converters.mil.mil import Builder as mb
from mil import Mil, array, network, noise, whole
from torch.nn import functional as F


@network
def mil_activations():
    alpha, beta = array(3), array(3)
    ramp = torch.linspace(-3, 3, 2 * 3 * 4).reshape(2, 3, 2, 2)

    def by_channel(values):
        return torch.from_numpy(values).reshape(1, 3, 1, 1)

    operators = {
        # Core ML's own definition: min(beta, x) where x is positive, min(beta, alpha * x) elsewhere.
        "clamped_relu": (
            lambda x, y: mb.clamped_relu(x=x, alpha=0.3, beta=1.5),
            lambda x, y: torch.clamp(F.leaky_relu(x, 0.3), max=1.5),
        ),
        "clamped_relu rising": (
            lambda x, y: mb.clamped_relu(x=x, alpha=-2.0, beta=1.5),
            lambda x, y: torch.clamp(torch.where(x > 0, x, -2.0 * x), max=1.5),
        ),
        "linear_activation": (
            lambda x, y: mb.linear_activation(x=x, alpha=2.5, beta=-0.75),
            lambda x, y: 2.5 * x - 0.75,
        ),
        "prelu": (
            lambda x, y: mb.prelu(x=x, alpha=alpha),
            lambda x, y: F.prelu(x, torch.from_numpy(alpha)),
        ),
        "scaled_tanh": (
            lambda x, y: mb.scaled_tanh(x=x, alpha=1.7, beta=0.6),
            lambda x, y: 1.7 * torch.tanh(0.6 * x),
        ),
        "softplus_parametric": (
            lambda x, y: mb.softplus_parametric(x=x, alpha=alpha, beta=beta),
            lambda x, y: by_channel(alpha) * F.softplus(by_channel(beta) * x),
        ),
        "softsign": (lambda x, y: mb.softsign(x=x), lambda x, y: F.softsign(x)),
        "threshold": (
            lambda x, y: mb.threshold(x=x, alpha=0.25),
            lambda x, y: torch.clamp(x, min=0.25),
        ),
        "gelu sigmoid": (
            lambda x, y: mb.gelu(x=x, mode="SIGMOID_APPROXIMATION"),
            lambda x, y: x * torch.sigmoid(1.702 * x),
        ),
        "exp2": (lambda x, y: mb.exp2(x=x), lambda x, y: torch.exp2(x)),
        "atanh": (
            lambda x, y: mb.atanh(x=mb.tanh(x=x)),
            lambda x, y: torch.atanh(torch.tanh(x)),
        ),
        "mod": (lambda x, y: mb.mod(x=x, y=y), lambda x, y: torch.remainder(x, y)),
        "mod of integers": (
            lambda x, y: mb.mod(x=scaled(x), y=divisor(y)),
            lambda x, y: torch.remainder((x * 10).to(torch.int32), (y * 7).to(torch.int32) | 1),
        ),
        "logical_xor": (
            lambda x, y: mb.logical_xor(x=mb.greater(x=x, y=0.0), y=mb.greater(x=y, y=0.0)),
            lambda x, y: (x > 0) ^ (y > 0),
        ),
        "identity": (lambda x, y: mb.identity(x=mb.add(x=x, y=y)), lambda x, y: x + y),
    }

    def scaled(x):
        return mb.cast(x=mb.mul(x=x, y=10.0), dtype="int32")

    def divisor(y):
        # Whole numbers made odd, so that none is zero: 2 * floor(n / 2) + 1.
        n = mb.cast(x=mb.mul(x=y, y=7.0), dtype="int32")
        return mb.add(x=mb.mul(x=mb.floor_div(x=n, y=2), y=2), y=1)

    return Mil(operators, [(ramp, noise(2, 3, 2, 2)), (noise(2, 3, 2, 2), noise(2, 3, 2, 2))])


@network
def mil_reductions():
    def reduced(name, function):
        return {
            f"{name} {label}": (
                lambda x, y, axes=axes, keep=keep: getattr(mb, name)(x=x, axes=axes, keep_dims=keep),
                lambda x, y, axes=axes, keep=keep: function(x, axes or (0, 1, 2), keep),
            )
            for label, axes, keep in (("one", [1], False), ("two", [0, -1], True), ("all", None, False))
        }

    def prod(x, axes, keep):
        for axis in sorted((axis % 3 for axis in axes), reverse=True):
            x = torch.prod(x, axis, keepdim=keep)
        return x

    operators = {
        **reduced("reduce_l1_norm", lambda x, axes, keep: x.abs().sum(axes, keepdim=keep)),
        **reduced("reduce_l2_norm", lambda x, axes, keep: (x * x).sum(axes, keepdim=keep).sqrt()),
        **reduced("reduce_sum_square", lambda x, axes, keep: (x * x).sum(axes, keepdim=keep)),
        **reduced("reduce_log_sum_exp", lambda x, axes, keep: torch.logsumexp(x, axes, keepdim=keep)),
        **reduced("reduce_prod", prod),
        "reduce_log_sum": (
            lambda x, y: mb.reduce_log_sum(x=mb.abs(x=x), axes=[0, 2]),
            lambda x, y: x.abs().sum((0, 2)).log(),
        ),
        "reduce_l1_norm of integers": (
            lambda x, y: mb.reduce_l1_norm(x=y, axes=[0]),
            lambda x, y: y.abs().sum(0).to(torch.int32),
        ),
        "reduce_prod of integers": (
            lambda x, y: mb.reduce_prod(x=y, axes=[1]),
            lambda x, y: y.prod(1).to(torch.int32),
        ),
        "argsort": (
            lambda x, y: mb.argsort(x=x, axis=1),
            lambda x, y: torch.argsort(x, 1, descending=True).to(torch.int32),
        ),
        "argsort up": (
            lambda x, y: mb.argsort(x=x, axis=-1, ascending=True),
            lambda x, y: torch.argsort(x, -1).to(torch.int32),
        ),
        "cumsum exclusive": (
            lambda x, y: mb.cumsum(x=x, axis=1, exclusive=True),
            lambda x, y: torch.cumsum(x, 1) - x,
        ),
        "cumsum reverse": (
            lambda x, y: mb.cumsum(x=x, axis=2, reverse=True),
            lambda x, y: torch.cumsum(x.flip(2), 2).flip(2),
        ),
        "cumsum both": (
            lambda x, y: mb.cumsum(x=y, axis=0, exclusive=True, reverse=True),
            lambda x, y: (torch.cumsum(y.flip(0), 0).flip(0) - y).to(torch.int32),
        ),
    }
    return Mil(operators, [(noise(2, 3, 4), whole(9, 4, 3) - 4), (noise(2, 3, 4), whole(9, 4, 3) - 4)])


@network
def mil_create():
    def banded(x, lower, upper):
        rows, columns = torch.arange(4)[:, None], torch.arange(5)[None]
        kept = torch.ones(4, 5, dtype=torch.bool)
        if lower >= 0:
            kept &= rows - columns <= lower
        if upper >= 0:
            kept &= columns - rows <= upper
        return torch.where(kept, x, 0.0)

    def hot(y, axis, on, off):
        vectors = F.one_hot(y.long(), 6).movedim(-1, axis)
        return torch.where(vectors == 1, on, off)

    operators = {
        "fill": (
            lambda x, y: mb.add(x=mb.fill(shape=[2, 4, 5], value=1.5), y=x),
            lambda x, y: x + 1.5,
        ),
        "fill of integers": (
            lambda x, y: mb.add(x=mb.fill(shape=[3], value=7), y=y),
            lambda x, y: y + 7,
        ),
        "fill_like": (
            lambda x, y: mb.add(x=mb.fill_like(ref_tensor=x, value=-2.5), y=x),
            lambda x, y: x - 2.5,
        ),
        "one_hot": (
            lambda x, y: mb.one_hot(indices=y, one_hot_vector_size=6),
            lambda x, y: hot(y, -1, 1, 0).to(torch.int32),
        ),
        "one_hot first": (
            lambda x, y: mb.one_hot(
                indices=y, one_hot_vector_size=6, axis=0, on_value=2.5, off_value=-1.0
            ),
            lambda x, y: hot(y, 0, 2.5, -1.0),
        ),
        # How many there are is not known before a run, so what is given is a sum over them.
        "non_zero": (
            lambda x, y: mb.reduce_sum(x=mb.non_zero(x=mb.greater(x=x, y=0.0)), axes=[0]),
            lambda x, y: torch.nonzero(x > 0).sum(0).to(torch.int32),
        ),
        "range_1d of floats": (
            lambda x, y: mb.add(x=mb.range_1d(start=0.5, end=3.0, step=0.5), y=x),
            lambda x, y: x + torch.arange(0.5, 3.0, 0.5),
        ),
    }
    for lower, upper in ((-1, 0), (0, -1), (1, 2), (-1, -1), (0, 0)):
        operators[f"band_part {lower} {upper}"] = (
            lambda x, y, lower=lower, upper=upper: mb.band_part(x=x, lower=lower, upper=upper),
            lambda x, y, lower=lower, upper=upper: banded(x, lower, upper),
        )
    return Mil(operators, [(noise(2, 4, 5), whole(6, 3)), (noise(2, 4, 5), whole(6, 3))])
