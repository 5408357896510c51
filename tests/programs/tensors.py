"""Programs without a delegate: shapes, reductions, indices and dtypes."""

import torch
from elementwise import aten, integers, noise, portable
from harness import DTYPES, Method, Ops, Program, program, skipped
from torch.nn import functional as F

skipped("sort, argsort, cummax, cumprod, logcumsumexp, unique", "no kernel")


@program
def views():
    operators = {
        "view": lambda x: x.view(6, 4),
        "inferred": lambda x: x.view(-1, 2),
        "reshape": lambda x: x.transpose(0, 1).reshape(3, 8),
        "flatten": lambda x: x.flatten(1),
        "permute": lambda x: x.permute(2, 0, 1),
        "transpose": lambda x: x.transpose(1, -1),
        "t": lambda x: x[0].t(),
        "unsqueeze": lambda x: x.unsqueeze(1),
        "squeeze": lambda x: x[:, :1].squeeze(1),
        "squeeze_all": lambda x: x[:1, :1].squeeze(),
        "squeeze_dims": lambda x: x[:1, :, :1].squeeze((0, 2)),
        "expand": lambda x: x[:, :1].expand(2, 3, 4),
        "expand_higher": lambda x: x[0, 0].expand(2, 3, -1),
        "as_strided": lambda x: torch.as_strided(x, (2, 2), (3, 1), 1),
    }
    return portable(operators, (noise(2, 3, 4),))


@program
def copies():
    operators = {
        "repeat": lambda x, y: x.repeat(2, 1, 2),
        "repeat_higher": lambda x, y: x.repeat(2, 1, 1, 1),
        "repeat_interleave": lambda x, y: x.repeat_interleave(2, 1),
        "cat": lambda x, y: torch.cat([x, y], 1),
        "cat_last": lambda x, y: torch.cat([x, x, x], -1),
        "cat_empty": lambda x, y: torch.cat([x[:, :0], y], 1),
        "cat_dtypes": lambda x, y: torch.cat([x, y.long()], 1),
        "stack": lambda x, y: torch.stack([x, x + 1]),
        "stack_last": lambda x, y: torch.stack([x, -x, x], -1),
        "flip": lambda x, y: x.flip(0, 2),
        "roll": lambda x, y: x.roll((1, -1), (0, 2)),
        "roll_flat": lambda x, y: x.roll(3),
        "clone": lambda x, y: x.clone(),
    }
    return portable(operators, (noise(2, 2, 3), noise(2, 4, 3)))


@program
def parts():
    operators = {
        "split": lambda x: x.split(2, 1),
        "split_with_sizes": lambda x: x.split([1, 3, 1], 1),
        "chunk": lambda x: x.chunk(3, -1),
        "unbind": lambda x: x.unbind(0),
        "slice": lambda x: x[:, 1:4],
        "slice_step": lambda x: x[:, ::2, 1::3],
        "slice_negative": lambda x: x[..., -3:-1],
        "slice_beyond": lambda x: x[:, 3:100],
        "select": lambda x: x[1],
        "select_negative": lambda x: x[:, -2],
        "narrow": lambda x: x.narrow(2, 1, 3),
        "narrow_copy": lambda x: torch.narrow_copy(x, 1, 2, 2),
        "diagonal": lambda x: x[0].diagonal(1),
        "unfold": lambda x: x.unfold(2, 3, 2),
    }
    return portable(operators, (noise(2, 5, 6),))


@program
def slices_written():
    operators = {
        "slice_scatter": lambda x, y: torch.slice_scatter(x, y, 1, 1, 3),
        "slice_scatter_step": lambda x, y: torch.slice_scatter(x, y, 1, 0, 4, 2),
        "select_scatter": lambda x, y: torch.select_scatter(x, y[:, 0], 1, -1),
        "fill": lambda x, y: torch.full_like(x, 2.0) + aten.fill.Scalar(x, 3),
        "fill_tensor": lambda x, y: aten.fill.Tensor(x, y.sum()),
        "copy": lambda x, y: aten.copy(x[:, :2], y),
        "copy_row": lambda x, y: aten.copy(x, y[0, :1]),
    }
    return portable(operators, (noise(2, 4), noise(2, 2)))


@program
def padding():
    operators = {
        "constant": lambda x: F.pad(x, (1, 2)),
        "constant_value": lambda x: F.pad(x, (0, 1, 2, 0, 1, 1), value=-1.5),
        "reflection_2d": lambda x: F.pad(x, (1, 2, 2, 1), mode="reflect"),
        "replication_2d": lambda x: F.pad(x, (1, 0, 3, 1), mode="replicate"),
        "pixel_shuffle": lambda x: F.pixel_shuffle(x.view(1, 4, 2, 3), 2),
        "pixel_unshuffle": lambda x: F.pixel_unshuffle(x.view(1, 2, 2, 6), 2),
    }
    return portable(operators, (noise(1, 2, 3, 4),))


@program
def padding_3d():
    operators = {
        "replication": lambda x: F.pad(x, (1, 0, 0, 2, 1, 1), mode="replicate"),
        "constant": lambda x: F.pad(x, (1, 0, 0, 2, 1, 1)),
    }
    return portable(operators, (noise(1, 2, 2, 3, 2),))


@program
def triangles():
    operators = {
        "tril": torch.tril,
        "tril_above": lambda x: x.tril(1),
        "triu": torch.triu,
        "causal": lambda x: x.masked_fill(torch.ones(4, 5).tril() == 0, float("-inf")),
    }
    return portable(operators, (noise(2, 4, 5),))


@program
def created():
    """Values that come from nowhere but their own arguments."""
    operators = {
        "arange": lambda x: torch.arange(5),
        "arange_step": lambda x: torch.arange(1, 12, 3),
        "arange_float": lambda x: torch.arange(0.5, 2.0, 0.25),
        "arange_down": lambda x: torch.arange(5, 0, -2),
        "linspace": lambda x: torch.linspace(-1, 1, 5),
        "full": lambda x: torch.full((2, 3), 1.5),
        "full_whole": lambda x: torch.full((3,), 7),
        "full_bool": lambda x: torch.full((2,), True),
        "full_like": lambda x: torch.full_like(x, -0.5),
        "full_like_long": lambda x: torch.full_like(x, 4, dtype=torch.int64),
        "zeros": lambda x: torch.zeros(2, 2),
        "ones": lambda x: torch.ones(3, dtype=torch.int32),
        "zeros_like": torch.zeros_like,
        "ones_like": torch.ones_like,
        "scalar_tensor": lambda x: torch.scalar_tensor(2.5) + x,
        "new_zeros": lambda x: x.new_zeros(2) + 1,
    }
    return portable(operators, (noise(2, 3),))


@program
def sums():
    operators = {
        "sum": lambda x: x.sum(),
        "dim": lambda x: x.sum(1),
        "dims": lambda x: x.sum((0, -1)),
        "keep": lambda x: x.sum((1, 2), keepdim=True),
        "long": lambda x: x.round().long().sum(0),
        "bool": lambda x: (x > 0).sum(-1),
        "dtype": lambda x: x.sum(1, dtype=torch.float64),
        "mean": lambda x: x.mean(),
        "mean_dim": lambda x: x.mean(-1),
        "mean_dims": lambda x: x.mean((0, 2), keepdim=True),
        "mean_dtype": lambda x: x.half().mean(1, dtype=torch.float32),
        "prod": lambda x: x.prod(),
        "prod_dim": lambda x: x.prod(1),
        "prod_keep": lambda x: x.prod(2, keepdim=True),
        "cumsum": lambda x: x.cumsum(0),
        "cumsum_last": lambda x: x.cumsum(-1),
        "cumsum_long": lambda x: (x > 0).cumsum(1),
    }
    return portable(operators, (noise(2, 3, 4),))


@program
def conditions():
    operators = {
        "any": lambda x: x.any(),
        "any_dim": lambda x: x.any(1),
        "any_keep": lambda x: x.any(-1, keepdim=True),
        "any_dims": lambda x: aten.any.dims(x, [0, 2]),
        "any_float": lambda x: x.float().any(0),
        "all": lambda x: x.all(),
        "all_dim": lambda x: x.all(1),
        "all_keep": lambda x: x.all(0, keepdim=True),
        "count": lambda x: x.count_nonzero(1),
    }
    given = integers(0, 4, 2, 3, 4) > 0
    return portable(operators, (given,), (torch.zeros(2, 3, 4, dtype=torch.bool),))


@program
def extremes():
    operators = {
        "max": torch.max,
        "min": torch.min,
        "max_dim": lambda x: x.max(1),
        "max_keep": lambda x: x.max(2, keepdim=True),
        "min_dim": lambda x: x.min(-1),
        "amax": lambda x: x.amax((0, 2)),
        "amax_keep": lambda x: x.amax(1, keepdim=True),
        "amax_all": lambda x: x.amax(),
        "amin": lambda x: x.amin(0),
        "argmax": lambda x: x.argmax(),
        "argmax_dim": lambda x: x.argmax(1),
        "argmax_keep": lambda x: x.argmax(-1, keepdim=True),
        "argmin": lambda x: x.argmin(),
        "argmin_dim": lambda x: x.argmin(2),
        "aminmax": lambda x: x.aminmax(dim=1),
    }
    ties = torch.cat([noise(1, 3, 4), integers(0, 3, 1, 3, 4).float()])
    return portable(operators, (ties,))


@program
def top():
    operators = {
        "topk": lambda x: x.topk(3),
        "smallest": lambda x: x.topk(2, largest=False),
        "other_dim": lambda x: x.topk(2, dim=0),
        "all": lambda x: x.topk(5, dim=1),
        "whole": lambda x: (x * 100).long().topk(2),
    }
    return portable(operators, (noise(3, 5),))


@program
def variances():
    operators = {
        "var": lambda x: x.var(),
        "var_dim": lambda x: x.var(1),
        "biased": lambda x: x.var(-1, unbiased=False),
        "unbiased_kernel": lambda x: aten.var.dim(x, [1], True, True),
        "correction": lambda x: x.var((0, 2), correction=2, keepdim=True),
        "std": lambda x: x.std(1),
        "var_mean": lambda x: torch.var_mean(x, 2),
        "norm": lambda x: x.norm(),
        "norm_dim": lambda x: torch.linalg.vector_norm(x, dim=1),
    }
    return portable(operators, (noise(2, 3, 5),))


@program
def softmaxes():
    operators = {
        "softmax": lambda x: x.softmax(-1),
        "softmax_middle": lambda x: x.softmax(1),
        "softmax_first": lambda x: x.softmax(0),
        "softmin": lambda x: F.softmin(x, -1),
        "log_softmax": lambda x: x.log_softmax(-1),
        "log_softmax_first": lambda x: x.log_softmax(0),
        "logsumexp": lambda x: x.logsumexp(1),
        "dtype": lambda x: x.half().softmax(-1, dtype=torch.float32),
    }
    large = noise(2, 3, 4) * 100
    masked = large.masked_fill(integers(0, 3, 2, 3, 4) == 0, float("-inf"))
    return portable(operators, (noise(2, 3, 4),), (masked,))


@program
def distances():
    operators = {
        "cdist": lambda x, y: torch.ops.aten._cdist_forward(x, y, 2.0, None),
        "cdist_one": lambda x, y: torch.ops.aten._cdist_forward(x, y, 1.0, None),
        "cdist_inf": lambda x, y: torch.ops.aten._cdist_forward(x, y, float("inf"), None),
        "pdist": lambda x, y: torch.ops.aten._pdist_forward(x, 2.0),
        "pdist_three": lambda x, y: torch.ops.aten._pdist_forward(x, 3.0),
    }
    return portable(operators, (noise(4, 3), noise(2, 3)))


@program
def fourier():
    """Complex numbers stay inside."""
    operators = {
        "rfft": lambda x: torch.view_as_real(torch.fft.rfft(x)),
        "rfft_ortho": lambda x: torch.view_as_real(torch.fft.rfft(x, norm="ortho")),
        "irfft": lambda x: torch.fft.irfft(torch.fft.rfft(x)),
    }
    return portable(operators, (noise(2, 8),))


@program
def gathers():
    operators = {
        "gather": lambda x, i, j: x.gather(1, i),
        "gather_first": lambda x, i, j: x.gather(0, i % 3),
        "take_along_dim": lambda x, i, j: x.take_along_dim(i[:, :1], 1),
        "index_select": lambda x, i, j: x.index_select(1, j),
        "index_select_first": lambda x, i, j: x.index_select(0, j % 3),
        "index": lambda x, i, j: x[j % 3],
        "index_last": lambda x, i, j: x[:, j],
        "index_two": lambda x, i, j: x[j % 3, j],
        "index_negative": lambda x, i, j: x[-1 - j % 3],
        "index_table": lambda x, i, j: x[i % 3],
        "index_broadcast": lambda x, i, j: x[(i % 3)[:, :1], j],
        "embedding": lambda x, i, j: F.embedding(i % 3, x),
        "one_hot": lambda x, i, j: F.one_hot(j, 5),
        "equal_rows": lambda x, i, j: (j[:, None] == torch.arange(5)).float(),
    }
    return portable(operators, (noise(3, 5), integers(0, 5, 3, 4), integers(0, 5, 6)))


@program
def gathers_higher():
    operators = {
        "middle": lambda x, i, j, k: x[:, i],
        "split": lambda x, i, j, k: x[i % 2, :, j],
        "adjacent": lambda x, i, j, k: x[:, i, j],
        "table": lambda x, i, j, k: x[:, :, i.view(2, 2)],
        "mask": lambda x, i, j, k: x[k],
        "ints_32": lambda x, i, j, k: x[:, i.int()],
        "select": lambda x, i, j, k: x.index_select(-1, j),
    }
    inputs = (noise(2, 3, 4), integers(0, 3, 4), integers(0, 4, 4), torch.tensor([True, False]))
    return portable(operators, inputs)


@program
def scatters():
    operators = {
        "scatter": lambda x, i, y, j: x.scatter(1, i, y),
        "scatter_value": lambda x, i, y, j: x.scatter(1, i, 2.5),
        "scatter_first": lambda x, i, y, j: x.scatter(0, (i + torch.arange(3)[:, None]) % 3, y),
        "scatter_add": lambda x, i, y, j: x.scatter_add(1, i % 2, y),
        "index_put": lambda x, i, y, j: x.index_put((j,), y.new_ones(2, 5)),
        "index_put_two": lambda x, i, y, j: x.index_put((j, j + 2), y[0, :2]),
        "index_put_add": lambda x, i, y, j: x.index_put((j * 0,), y.new_ones(2, 5), True),
        "index_put_column": lambda x, i, y, j: aten.index_put(x, [None, j], y.new_zeros(3, 2)),
        "index_put_scalar": lambda x, i, y, j: x.index_put((j,), y.sum()),
        "index_fill": lambda x, i, y, j: x.index_fill(1, j, -1.0),
        "index_add": lambda x, i, y, j: x.index_add(0, j, y.new_ones(2, 5)),
        "index_copy": lambda x, i, y, j: x.index_copy(0, j, y.new_ones(2, 5)),
    }
    columns = torch.stack([torch.randperm(5)[:4] for _ in range(3)])
    return portable(operators, (noise(3, 5), columns, noise(3, 4), torch.tensor([2, 0])))


@program
def unknown_sizes():
    """How many elements come out depends on the values."""
    operators = {
        "nonzero": lambda x: x.nonzero(),
        "masked_select": lambda x: x.masked_select(x > 0),
    }
    few = torch.zeros(2, 3)
    few[1, 2] = 1
    return portable(operators, (noise(2, 3),), (few,), (torch.zeros(2, 3),))


@program
def repeats_by_tensor():
    operators = {"repeat_interleave": lambda n: torch.repeat_interleave(n, output_size=7)}
    return portable(operators, (torch.tensor([2, 0, 4, 1]),))


def in_dtype(dtype):
    """What is tried in every floating dtype."""
    operators = {
        "add": lambda x, y: x + y,
        "mul_scalar": lambda x, y: x * 1.5,
        "div": lambda x, y: x / y,
        "exp": lambda x, y: x.exp(),
        "sqrt": lambda x, y: x.abs().sqrt(),
        "sigmoid": lambda x, y: x.sigmoid(),
        "gelu": lambda x, y: F.gelu(x),
        "clamp": lambda x, y: x.clamp(-0.5, 0.5),
        "where": lambda x, y: torch.where(x > y, x, y),
        "sum": lambda x, y: x.sum(1),
        "mean": lambda x, y: x.mean(),
        "max": lambda x, y: x.max(1),
        "softmax": lambda x, y: x.softmax(-1),
        "mm": lambda x, y: x @ y.t(),
        "layer_norm": lambda x, y: F.layer_norm(x, (5,)),
        "cat": lambda x, y: torch.cat([x, y], 1),
        "less": lambda x, y: x < y,
    }
    if dtype == torch.float64:
        operators = {name: operators[name] for name in FEW}
    return portable(operators, (noise(3, 5).to(dtype), noise(3, 5).to(dtype)))


FEW = "add", "mul_scalar", "div", "exp", "clamp", "sum", "softmax", "mm"


@program
def float16():
    return in_dtype(torch.float16)


@program
def bfloat16():
    return in_dtype(torch.bfloat16)


@program
def float64():
    return in_dtype(torch.float64)


def whole(operators, kept, *cases):
    """A program in which the exporter leaves some operators as they are."""
    return portable(operators, *cases, compile={"preserve_ops": kept})


@program
def whole_values():
    operators = {
        "logit": lambda x: torch.logit(x, 0.1),
        "glu": lambda x: F.glu(x, 1),
        "masked_fill": lambda x: x.masked_fill(x > 0.5, -1.5),
        "rsub": lambda x: aten.rsub.Scalar(x, 2, 3),
        "floor_divide": lambda x: torch.floor_divide(x, x[0] - 1.1),
        "tril": lambda x: x.tril(1),
        "roll": lambda x: x.roll((1, -1), (0, 1)),
        "var": lambda x: x.var(1),
        "select_scatter": lambda x: torch.select_scatter(x, x[:, 0], 1, -1),
    }
    kept = [
        aten.logit.default,
        aten.glu.default,
        aten.masked_fill.Scalar,
        aten.rsub.Scalar,
        aten.floor_divide.default,
        aten.tril.default,
        aten.roll.default,
        aten.var.dim,
        aten.select_scatter.default,
    ]
    return whole(operators, kept, (torch.rand(3, 4),))


@program
def whole_shapes():
    operators = {
        "stack": lambda x: torch.stack([x, x + 1], 1),
        "unbind": lambda x: x.unbind(1),
        "split": lambda x: x.split(3, 2),
        "transpose": lambda x: x.transpose(1, 2),
        "t": lambda x: x[0, 0].t(),
        "squeeze": lambda x: x[:, :1].squeeze(1),
        "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2),
        "pixel_unshuffle": lambda x: F.pixel_unshuffle(x, 2),
        "reflection_1d": lambda x: F.pad(x[0], (1, 2), mode="reflect"),
        "reflection_2d": lambda x: F.pad(x, (1, 2, 1, 0), mode="reflect"),
        "replication_1d": lambda x: F.pad(x[0], (2, 1), mode="replicate"),
        "replication_2d": lambda x: F.pad(x, (1, 0, 3, 1), mode="replicate"),
    }
    kept = [
        aten.stack.default,
        aten.unbind.int,
        aten.split.Tensor,
        aten.transpose.int,
        aten.t.default,
        aten.squeeze.dim,
        aten.pixel_shuffle.default,
        aten.pixel_unshuffle.default,
        aten.reflection_pad1d.default,
        aten.reflection_pad2d.default,
        aten.replication_pad1d.default,
        aten.replication_pad2d.default,
    ]
    return whole(operators, kept, (noise(1, 4, 2, 4),))


RARE = "int8", "int16", "int32", "float64"


@program
def conversions():
    """From one dtype, a method each, to every other."""
    methods = {}
    dtypes = {dtype: name for dtype, name in DTYPES.items() if name not in RARE}
    for dtype, name in dtypes.items():
        if dtype.is_floating_point:
            values = torch.tensor([0.0, 1.0, 0.5, 2.75, 100.4, 3.5])
        elif dtype == torch.bool:
            values = torch.tensor([True, False])
        else:
            info = torch.iinfo(dtype)
            values = torch.tensor([0, 1, 100, info.max, info.min])
        operators = {
            other: lambda x, to=to: x.to(to) for to, other in dtypes.items() if to != dtype
        }
        methods[f"from_{name}"] = Method(Ops(operators), [(values.to(dtype),)])
    return Program("portable", methods)


@program
def conversions_of_negatives():
    """Fractions are cut off; what does not fit into whole numbers is left out."""
    operators = {
        name: lambda x, dtype=dtype: x.to(dtype)
        for dtype, name in DTYPES.items()
        if dtype not in (torch.uint8, torch.float32)
    }
    return portable(operators, (torch.tensor([-0.0, -0.5, -1.0, -1.5, -100.9, 0.1, 1e-3]),))
