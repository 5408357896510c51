"""Programs without a delegate: what layers of networks are made of."""

import torch
from elementwise import aten, integers, noise, portable
from harness import Ops, forward, program, skipped
from torch import nn
from torch.nn import functional as F

skipped(
    "Conv3d, pooling in three dimensions, LocalResponseNorm",
    "the portable kernels are for one or two",
)
skipped("bicubic interpolation", "left out: it becomes 28 kB of small operators that others have")


def of_parts(parts, *cases, **rest):
    """A program in which every part gets the same inputs."""
    operators = {name: (lambda parts, *x, name=name: getattr(parts, name)(*x)) for name in parts}
    return forward("portable", Ops(operators, **parts), *cases, **rest)


def preserving(*operators):
    """The exporter leaves these operators whole."""
    return {"preserve_ops": list(operators)}


@program
def products():
    operators = {
        "mm": lambda a, b, c: a[0] @ b[0],
        "bmm": lambda a, b, c: torch.bmm(a, b),
        "matmul_broadcast": lambda a, b, c: a @ b[0],
        "vector": lambda a, b, c: a @ b[0, :, 0],
        "addmm": lambda a, b, c: torch.addmm(c, a[0], b[0]),
        "addmm_scaled": lambda a, b, c: torch.addmm(c, a[0], b[0], beta=0.5, alpha=2),
        "baddbmm": lambda a, b, c: torch.baddbmm(c, a, b),
        "linear": lambda a, b, c: F.linear(a, b[0].t(), c),
        "linear_free": lambda a, b, c: F.linear(a[0], b[1].t()),
    }
    return portable(operators, (noise(2, 3, 4), noise(2, 4, 5), noise(5)))


@program
def products_of_integers():
    operators = {
        "mm": lambda a, b: a @ b,
        "bmm": lambda a, b: torch.bmm(a[None], b[None]),
    }
    return portable(operators, (integers(-9, 9, 2, 3), integers(-9, 9, 3, 4)))


@program
def linear_whole():
    """The linear operator itself, not what it is made of."""
    parts = {"bias": nn.Linear(5, 4), "free": nn.Linear(5, 3, bias=False)}
    keep = preserving(torch.ops.aten.linear.default)
    return of_parts(parts, (noise(2, 3, 5),), compile=keep)


@program
def convolutions():
    parts = {
        "plain": nn.Conv2d(4, 3, 3),
        "padded": nn.Conv2d(4, 3, 3, padding=1, bias=False),
        "strides": nn.Conv2d(4, 2, (3, 2), stride=(1, 2), padding=(2, 0)),
        "groups": nn.Conv2d(4, 6, 3, groups=2),
        "depthwise": nn.Conv2d(4, 8, 3, groups=4, padding=1),
        "dilated": nn.Conv2d(4, 2, 2, dilation=2),
        "pointwise": nn.Conv2d(4, 5, 1),
        "transposed": nn.ConvTranspose2d(4, 2, 3),
        "transposed_stride": nn.ConvTranspose2d(4, 2, 3, stride=2, padding=1, output_padding=1),
        "transposed_groups": nn.ConvTranspose2d(4, 4, 2, groups=2, bias=False),
        "transposed_dilated": nn.ConvTranspose2d(4, 2, 2, dilation=2),
    }
    return of_parts(parts, (noise(1, 4, 5, 4),))


@program
def convolutions_1d():
    parts = {
        "plain": nn.Conv1d(4, 3, 3),
        "stride": nn.Conv1d(4, 3, 5, stride=2, padding=2, bias=False),
        "depthwise": nn.Conv1d(4, 4, 3, groups=4, padding=1),
        "dilated": nn.Conv1d(4, 2, 3, dilation=2),
        "transposed": nn.ConvTranspose1d(4, 2, 3, stride=2),
    }
    return of_parts(parts, (noise(2, 4, 9),))


@program
def convolution_weights_given():
    operators = {
        "conv": lambda x, w, b: F.conv2d(x, w, b, padding=1),
        "free": lambda x, w, b: F.conv2d(x, w),
    }
    return portable(operators, (noise(1, 2, 4, 4), noise(3, 2, 3, 3), noise(3)))


@program
def poolings():
    operators = {
        "max": lambda x: F.max_pool2d(x, 2),
        "max_padded": lambda x: F.max_pool2d(x, 3, 2, 1),
        "max_ceil": lambda x: F.max_pool2d(x, 2, 2, ceil_mode=True),
        "max_indices": lambda x: F.max_pool2d(x, (2, 3), 2, return_indices=True),
        "max_indices_padded": lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True),
        "average": lambda x: F.avg_pool2d(x, 2),
        "average_counting": lambda x: F.avg_pool2d(x, 3, 2, 1),
        "average_not_counting": lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        "average_ceil": lambda x: F.avg_pool2d(x, 2, 2, ceil_mode=True),
        "average_ceil_counting": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
        "average_divisor": lambda x: F.avg_pool2d(x, 2, divisor_override=3),
        "adaptive": lambda x: F.adaptive_avg_pool2d(x, 1),
        "adaptive_even": lambda x: F.adaptive_avg_pool2d(x, (7, 3)),
    }
    return portable(operators, (noise(1, 2, 7, 6),))


@program
def adaptive_pooling_whole():
    operators = {
        "even": lambda x: F.adaptive_avg_pool2d(x, (2, 3)),
        "odd": lambda x: F.adaptive_avg_pool2d(x, (4, 5)),
    }
    keep = preserving(torch.ops.aten._adaptive_avg_pool2d.default)
    return portable(operators, (noise(1, 2, 7, 6),), compile=keep)


def excited(norm):
    """A normalization whose values are not those it starts with."""
    for value in [*norm.parameters(), *norm.buffers()]:
        if value.is_floating_point():
            nn.init.uniform_(value, 0.5, 2)
    return norm


@program
def norms():
    parts = {
        "layer": excited(nn.LayerNorm(6)),
        "layer_two": excited(nn.LayerNorm((3, 6))),
        "layer_plain": nn.LayerNorm(6, elementwise_affine=False, eps=0.1),
        "group": excited(nn.GroupNorm(2, 4)),
        "group_plain": nn.GroupNorm(4, 4, affine=False),
        "batch": excited(nn.BatchNorm2d(4)),
        "batch_plain": nn.BatchNorm2d(4, affine=False),
        "instance_affine": excited(nn.InstanceNorm2d(4, affine=True)),
        "rms": excited(nn.RMSNorm(6)),
    }
    return of_parts(parts, (noise(1, 4, 3, 6) * 3,))


@program
def norms_1d():
    parts = {"batch": excited(nn.BatchNorm1d(4)), "group": excited(nn.GroupNorm(2, 4))}
    return of_parts(parts, (noise(3, 4),), (noise(3, 4) * 9,))


@program
def resizes():
    operators = {
        "nearest": lambda x: F.interpolate(x, scale_factor=2),
        "nearest_size": lambda x: F.interpolate(x, size=(7, 3)),
        "nearest_exact_size": lambda x: F.interpolate(x, size=(2, 2)),
        "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
        "bilinear_factor": lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear"),
        "bilinear_aligned": lambda x: F.interpolate(x, (6, 9), mode="bilinear", align_corners=True),
        "bilinear_smaller": lambda x: F.interpolate(x, size=(2, 3), mode="bilinear"),
        "bilinear_antialias": lambda x: F.interpolate(
            x, size=(2, 3), mode="bilinear", antialias=True
        ),
    }
    keep = preserving(
        aten.upsample_nearest2d.vec,
        aten.upsample_bilinear2d.vec,
        aten._upsample_bilinear2d_aa.default,
    )
    return portable(operators, (noise(1, 2, 4, 5),), compile=keep)


@program
def resizes_decomposed():
    """As the exporter writes them unless it is told to keep them."""
    operators = {
        "nearest": lambda x: F.interpolate(x, scale_factor=2),
        "bilinear": lambda x: F.interpolate(x, size=(7, 5), mode="bilinear"),
    }
    return portable(operators, (noise(1, 2, 4, 5),))


@program
def grids():
    operators = {
        f"{mode}_{pad}_{corners}": lambda x, g, mode=mode, pad=pad, corners=corners: F.grid_sample(
            x, g, mode=mode, padding_mode=pad, align_corners=corners
        )
        for mode in ("bilinear", "nearest", "bicubic")
        for pad in ("zeros", "border", "reflection")
        for corners in (False, True)
    }
    keep = preserving(aten.grid_sampler_2d.default)
    return portable(operators, (noise(1, 2, 4, 5), torch.rand(1, 2, 3, 2) * 3 - 1.5), compile=keep)


@program
def embeddings():
    class Embeddings(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(10, 6)
            self.padded = nn.Embedding(10, 4, padding_idx=0)

        def forward(self, ids, short):
            return self.words(ids), self.padded(ids), self.words(short), self.words(ids[0, 0])

    inputs = (integers(0, 10, 2, 3), integers(0, 10, 4, dtype=torch.int32))
    return forward("portable", Embeddings(), inputs)


@program
def recurrent():
    parts = {
        "lstm": nn.LSTM(4, 5, batch_first=True),
    }
    return of_parts(parts, (noise(1, 2, 4),))


@program
def attention():
    operators = {
        "causal": lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    }
    return portable(operators, (noise(1, 2, 3, 4),))


@program
def channels_last():
    """The input has its channels innermost in memory, and so have values inside."""
    parts = {
        "conv": nn.Conv2d(3, 4, 3, padding=1),
        "relu": nn.ReLU(),
        "contiguous": nn.Sequential(nn.ReLU(), Contiguous()),
    }
    return of_parts(parts, (noise(1, 3, 4, 5).to(memory_format=torch.channels_last),))


class Contiguous(nn.Module):
    def forward(self, x):
        return x.to(memory_format=torch.contiguous_format)


@program
def channels_last_inside():
    class Inside(nn.Module):
        def forward(self, x):
            y = x.to(memory_format=torch.channels_last)
            return (y + y).to(memory_format=torch.contiguous_format), y.relu()

    return forward("portable", Inside(), (noise(1, 3, 4, 5),))
