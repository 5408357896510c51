"""Programs that XNNPACK's delegate runs in floating point."""

import torch
from blocks import depthwise, squeeze_and_excitation
from harness import Ops, forward, program, skipped
from torch import nn
from torch.nn import functional as F

FP32 = "xnnpack fp32"
FP16 = "xnnpack fp16"
BF16 = "xnnpack bf16"
IMAGE = (1, 4, 6, 5)

skipped("XNNScaledDotProductAttention", "the exporter lowers attention to its parts")
skipped("XNNArgMaxPooling2d", "the exporter makes a max pooling of every maximum that it takes")
skipped("PReLU of rank 2", "the exporter fails: it takes every PReLU for an image's")
skipped("negative padding", "no delegate takes it and the portable kernel refuses it")


def noise(*shape):
    """Random values."""
    return torch.randn(*shape)


def delegated(network, *cases, options=None, family=FP32, **rest):
    """A program with XNNPACK's partitioner."""
    return forward(family, network, *cases, options=options or {}, **rest)


def of_parts(parts, *cases, **rest):
    """A program in which every part gets the same inputs."""
    operators = {name: (lambda parts, *x, name=name: getattr(parts, name)(*x)) for name in parts}
    return delegated(Ops(operators, **parts), *cases, **rest)


@program
def xnn_convolution():
    parts = {
        "plain": nn.Conv2d(4, 6, 3),
        "same": nn.Conv2d(4, 5, 3, padding=1),
        "stride": nn.Conv2d(4, 6, 3, stride=2, padding=1),
        "pointwise": nn.Conv2d(4, 3, 1),
        "dilated": nn.Conv2d(4, 3, 3, dilation=2, padding=2),
        "groups": nn.Conv2d(4, 6, 3, groups=2, padding=1),
        "padding_same": nn.Conv2d(4, 3, (2, 4), padding="same"),
        "asymmetric": nn.Sequential(nn.ZeroPad2d((0, 1, 2, 0)), nn.Conv2d(4, 3, 3, stride=2)),
    }
    return of_parts(parts, (noise(*IMAGE),))


@program
def xnn_depthwise():
    parts = {
        "plain": nn.Conv2d(4, 4, 3, groups=4, padding=1),
        "stride": nn.Conv2d(4, 4, 5, groups=4, stride=2, padding=2, bias=False),
        "multiplier": nn.Conv2d(4, 8, 3, groups=4),
        "dilated": nn.Conv2d(4, 4, 3, groups=4, dilation=2),
        "wide": nn.Conv2d(4, 4, (1, 3), groups=4, padding=(0, 1)),
    }
    return of_parts(parts, (noise(*IMAGE),))


@program
def xnn_transposed():
    parts = {
        "plain": nn.ConvTranspose2d(4, 3, 3),
        "stride": nn.ConvTranspose2d(4, 3, 2, stride=2),
        "padding": nn.ConvTranspose2d(4, 3, 3, stride=2, padding=1, bias=False),
        "output_padding": nn.ConvTranspose2d(4, 5, 3, stride=2, padding=1, output_padding=1),
        "groups": nn.ConvTranspose2d(4, 6, 3, groups=2),
        "dilated": nn.ConvTranspose2d(4, 2, 2, dilation=2),
    }
    return of_parts(parts, (noise(1, 4, 4, 3),))


@program
def xnn_convolution_1d():
    parts = {
        "plain": nn.Conv1d(4, 6, 3),
        "stride": nn.Conv1d(4, 3, 5, stride=2, padding=2, bias=False),
        "depthwise": nn.Conv1d(4, 4, 3, groups=4, padding=1),
        "dilated": nn.Sequential(nn.Conv1d(4, 4, 3, dilation=2), nn.ReLU()),
    }
    return of_parts(parts, (noise(2, 4, 11),))


@program
def xnn_fused():
    def with_norm(channels):
        norm = nn.BatchNorm2d(channels)
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
        return norm

    class Sum(nn.Module):
        def __init__(self, after):
            super().__init__()
            self.after = after

        def forward(self, x):
            return self.after(x + x.flip(3))

    parts = {
        "conv_relu6": nn.Sequential(nn.Conv2d(4, 4, 3), nn.ReLU6()),
        "conv_hardtanh": nn.Sequential(nn.Conv2d(4, 4, 3), nn.Hardtanh(-0.25, 0.5)),
        "depthwise_relu": nn.Sequential(nn.Conv2d(4, 4, 3, groups=4), nn.ReLU()),
        "conv_norm": nn.Sequential(nn.Conv2d(4, 5, 3), with_norm(5)),
        "conv_norm_relu6": nn.Sequential(nn.Conv2d(4, 5, 3, bias=False), with_norm(5), nn.ReLU6()),
        "norm": with_norm(4),
        "linear_relu": nn.Sequential(nn.Linear(5, 4), nn.ReLU()),
        "add_relu": Sum(nn.ReLU()),
        "add_relu6": Sum(nn.ReLU6()),
    }
    return of_parts(parts, (noise(*IMAGE) * 4,))


@program
def xnn_linear():
    parts = {
        "bias": nn.Linear(8, 6),
        "no_bias": nn.Linear(8, 3, bias=False),
        "one": nn.Linear(8, 1),
        "two": nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)),
    }
    return of_parts(parts, (noise(2, 3, 8),))


@program
def xnn_linear_ranks():
    class Ranks(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 6)

        def forward(self, one, two, four):
            return self.linear(one), self.linear(two), self.linear(four)

    return delegated(Ranks(), (noise(8), noise(3, 8), noise(2, 1, 3, 8)))


@program
def xnn_addmm():
    class Addmm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(noise(8, 6))
            self.bias = nn.Parameter(noise(6))

        def forward(self, x):
            return (
                torch.addmm(self.bias, x, self.weight),
                torch.mm(x, self.weight),
                torch.mm(x, self.weight).relu(),
            )

    return delegated(Addmm(), (noise(3, 8),))


@program
def xnn_linear_weights_given():
    """The weights are inputs: nothing of a linear layer is constant."""
    network = Ops(
        {"linear": lambda x, w, b: F.linear(x, w, b), "free": lambda x, w, b: F.linear(x, w)}
    )
    options = {"force_non_static_weights_for_f32_linear": True}
    return delegated(network, (noise(3, 8), noise(5, 8), noise(5)), options=options)


@program
def xnn_matmul():
    operators = {
        "batched": lambda a, b: torch.bmm(a, b),
        "batched_transposed": lambda a, b: torch.bmm(a, a.transpose(1, 2)),
        "four": lambda a, b: torch.matmul(a.view(1, 2, 3, 4), b.view(1, 2, 4, 5)),
        "broadcast": lambda a, b: torch.matmul(a.view(2, 1, 3, 4), b.view(1, 2, 4, 5)),
    }
    return delegated(Ops(operators), (noise(2, 3, 4), noise(2, 4, 5)))


@program
def xnn_attention():
    class Attention(nn.Module):
        def forward(self, q, k, v, mask):
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    inputs = (noise(1, 2, 5, 8), noise(1, 2, 7, 8), noise(1, 2, 7, 8), noise(5, 7))
    return delegated(Attention(), inputs)


@program
def xnn_pooling():
    parts = {
        "max": nn.MaxPool2d(2),
        "max_padded": nn.MaxPool2d(3, stride=2, padding=1),
        "max_overlapping": nn.MaxPool2d(3, stride=1),
        "max_wide": nn.MaxPool2d((1, 2), stride=(1, 2)),
        "max_dilated": nn.MaxPool2d(2, stride=1, dilation=2),
        "max_ceil": nn.MaxPool2d(2, stride=2, ceil_mode=True),
        "average": nn.AvgPool2d(2),
        "average_padded": nn.AvgPool2d(3, stride=2, padding=1, count_include_pad=False),
        "average_wide": nn.AvgPool2d((3, 2), stride=(2, 1)),
        "average_counting": nn.AvgPool2d(3, stride=2, padding=1),
    }
    return of_parts(parts, (noise(1, 2, 9, 8) - 2,))


@program
def xnn_global_pooling():
    operators = {
        "keep": lambda x: x.mean((2, 3), keepdim=True),
        "drop": lambda x: x.mean((2, 3)),
        "reversed": lambda x: x.mean((-1, -2), keepdim=True),
        "adaptive": lambda x: F.adaptive_avg_pool2d(x, 1),
        "flat": lambda x: torch.flatten(F.adaptive_avg_pool2d(x, 1), 1),
        "other": lambda x: x.mean(1),
    }
    return delegated(Ops(operators), (noise(2, 3, 5, 4),))


@program
def xnn_unary():
    operators = {
        "abs": torch.abs,
        "ceil": torch.ceil,
        "floor": torch.floor,
        "neg": torch.neg,
        "exp": torch.exp,
        "sin": torch.sin,
        "cos": torch.cos,
        "tanh": torch.tanh,
        "sigmoid": torch.sigmoid,
        "square": torch.square,
        "square_by_power": lambda x: x**2,
        "relu": torch.relu,
        "relu6": F.relu6,
        "clamp": lambda x: torch.clamp(x, -0.5, 1.5),
        "clamp_min": lambda x: torch.clamp(x, min=0.25),
        "clamp_max": lambda x: torch.clamp(x, max=0.25),
        "hardtanh": lambda x: F.hardtanh(x, -2.0, 0.75),
        "hardswish": F.hardswish,
        "hardsigmoid": F.hardsigmoid,
        "silu": F.silu,
        "gelu": F.gelu,
        "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
        "leaky_relu": lambda x: F.leaky_relu(x, 0.125),
        "elu": F.elu,
        "elu_alpha": lambda x: F.elu(x, 0.5),
        "clone": lambda x: x.clone() + x,
    }
    edge = torch.tensor([[0.0, -0.0, 0.5, -0.5, 1.0, -1.0], [2.5, -2.5, 3.0, -3.0, 6.0, -8.0]])
    return delegated(Ops(operators), (torch.cat([edge, noise(1, 6) * 3]),))


@program
def xnn_unary_positive():
    operators = {"sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "log": torch.log}
    return delegated(Ops(operators), (noise(2, 7).exp() * torch.tensor([[1.0], [100.0]]),))


@program
def xnn_elu():
    """What the exporter can lower but does not unless asked."""
    from executorch.backends.xnnpack.partition.config import ALL_PARTITIONER_CONFIGS
    from executorch.backends.xnnpack.partition.config.generic_node_configs import EluConfig

    operators = {"elu": F.elu, "elu_alpha": lambda x: F.elu(x, 0.5)}
    options = {"configs": [*ALL_PARTITIONER_CONFIGS, EluConfig]}
    return delegated(Ops(operators), (noise(2, 6) * 3,), options=options)


@program
def xnn_prelu():
    parts = {"one": nn.PReLU(init=0.3), "channels": nn.PReLU(3)}
    nn.init.uniform_(parts["channels"].weight, -0.5, 1)
    return of_parts(parts, (noise(2, 3, 4, 5),))


@program
def xnn_binary():
    operators = {
        "add": torch.add,
        "sub": torch.sub,
        "mul": torch.mul,
        "div": torch.div,
        "maximum": torch.maximum,
        "minimum": torch.minimum,
        "reversed_sub": lambda a, b: b - a,
        "reversed_div": lambda a, b: b / a,
    }
    return delegated(Ops(operators), (noise(2, 3, 4), noise(2, 3, 4)))


@program
def xnn_binary_broadcast():
    operators = {
        "rows": lambda a, b, c, d: a + b,
        "columns": lambda a, b, c, d: a * c,
        "both": lambda a, b, c, d: b - c,
        "rank": lambda a, b, c, d: a / (d.exp() + 1),
        "outer": lambda a, b, c, d: torch.maximum(c, d),
        "least": lambda a, b, c, d: torch.minimum(d, a),
    }
    return delegated(Ops(operators), (noise(2, 3, 4), noise(4), noise(2, 3, 1), noise(1, 1, 1, 4)))


@program
def xnn_binary_constants():
    class Constants(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("row", noise(4))
            self.register_buffer("scalar", torch.tensor(0.75))

        def forward(self, x):
            return x + 1.5, x * -2, 1 - x, x / 3, x + self.row, self.scalar * x, x - 2 * self.row

    return delegated(Constants(), (noise(3, 4),))


@program
def xnn_softmax():
    operators = {
        "last": lambda x: F.softmax(x, -1),
        "last_by_number": lambda x: F.softmax(x, 2),
        "not_last": lambda x: F.softmax(x, 1),
        "log": lambda x: F.log_softmax(x, -1),
    }
    return delegated(Ops(operators), (noise(2, 3, 5) * torch.tensor([4.0, 40.0]).view(2, 1, 1),))


@program
def xnn_concatenation():
    operators = {
        "two": lambda a, b: torch.cat([a, b], 1),
        "three": lambda a, b: torch.cat([a, b, a * 2], 1),
        "four": lambda a, b: torch.cat([a, a * 3, a + 1, a], -2),
        "five": lambda a, b: torch.cat([a, b, a, b, a], 1),
        "seven": lambda a, b: torch.cat([a, b, a, b, a, b, b], 1),
        "channels": lambda a, b: torch.cat([F.max_pool2d(a, 1), F.max_pool2d(b, 1)], 1),
    }
    return delegated(Ops(operators), (noise(1, 2, 3, 4), noise(1, 5, 3, 4)))


@program
def xnn_shapes():
    operators = {
        "slice": lambda x: x[:, 1:3],
        "slice_last": lambda x: x[..., 2:],
        "slice_first": lambda x: x[:1, :, :2],
        "stride": lambda x: x[:, ::2],
        "permute": lambda x: x.permute(2, 0, 3, 1),
        "transpose": lambda x: x.transpose(1, 3),
        "reshape": lambda x: x.reshape(6, 12),
        "view_inferred": lambda x: x.view(2, -1),
        "flatten": lambda x: torch.flatten(x, 1, 2),
        "unsqueeze": lambda x: x.unsqueeze(2),
        "squeeze": lambda x: x[:, :1].squeeze(1),
        "pad": lambda x: F.pad(x, (1, 2)),
        "pad_value": lambda x: F.pad(x, (0, 1, 2, 0, 1, 1), value=-1.5),
        "chunks": lambda x: torch.chunk(x, 2, 2),
    }
    return delegated(Ops(operators), (noise(2, 3, 4, 3),))


@program
def xnn_resize():
    operators = {
        "twice": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
        "aligned": lambda x: F.interpolate(x, size=(7, 9), mode="bilinear", align_corners=True),
        "odd": lambda x: F.interpolate(x, size=(7, 5), mode="bilinear"),
        "smaller": lambda x: F.interpolate(x, size=(2, 3), mode="bilinear"),
        "one": lambda x: F.interpolate(x, size=(1, 1), mode="bilinear", align_corners=True),
    }
    return delegated(Ops(operators), (noise(1, 3, 4, 5),))


@program
def xnn_max_of_dim():
    """A maximum along one side of an image becomes a max pooling if its indices are not used."""
    operators = {
        "rows": lambda x: torch.max(x, 2, keepdim=True)[0],
        "columns": lambda x: torch.max(x, 3, keepdim=True)[0],
    }
    return delegated(Ops(operators), (noise(1, 3, 4, 5),))


@program
def xnn_channels_last():
    """The input itself has its channels innermost in memory."""
    parts = {
        "conv": nn.Conv2d(3, 4, 3, padding=1),
        "pool": nn.MaxPool2d(2),
        "relu": nn.ReLU(),
    }
    return of_parts(parts, (noise(1, 3, 6, 5).to(memory_format=torch.channels_last),))


@program
def xnn_channels_last_between():
    """Contiguous outside, channels innermost inside."""

    class Between(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Conv2d(3, 4, 3, padding=1)
            self.second = nn.Conv2d(4, 2, 3)

        def forward(self, x):
            x = self.first(x.to(memory_format=torch.channels_last)).relu()
            return self.second(x).to(memory_format=torch.contiguous_format)

    return delegated(Between(), (noise(1, 3, 6, 5),))


@program
def xnn_block():
    """An inverted residual with squeeze and excitation, then a classifier."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.expand = nn.Sequential(
                nn.Conv2d(8, 16, 1, bias=False), nn.BatchNorm2d(16), nn.Hardswish()
            )
            self.depth = depthwise()
            self.squeeze = squeeze_and_excitation()
            self.project = nn.Sequential(nn.Conv2d(16, 8, 1, bias=False), nn.BatchNorm2d(8))
            self.classify = nn.Linear(8, 10)

        def forward(self, x):
            y = self.depth(self.expand(x))
            y = self.project(y * self.squeeze(y)) + x
            return self.classify(y.mean((2, 3))).softmax(-1)

    return delegated(Block(), (noise(1, 8, 5, 5),))


@program
def xnn_outputs():
    """Values that leave the delegate and are used inside it, twice, or not changed at all."""

    class Outputs(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 3)

        def forward(self, x, unused):
            y = self.linear(x)
            z = torch.tanh(y)
            return z, y, z + y, y, x

    return delegated(Outputs(), (noise(2, 4), noise(3)))


@program
def xnn_many_delegates():
    """Every operator in a delegate of its own, the weights shared."""

    class Many(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(5, 5)

        def forward(self, x):
            for _ in range(3):
                x = torch.sigmoid(self.linear(x)) - x
            return x

    return delegated(Many(), (noise(2, 5),), options={"per_op_mode": True})


@program
def xnn_half():
    parts = {
        "conv": nn.Sequential(nn.Conv2d(4, 6, 3, padding=1), nn.ReLU()),
        "depthwise": nn.Conv2d(4, 4, 3, groups=4),
        "linear": nn.Linear(5, 4),
        "pool": nn.MaxPool2d(2),
        "mean": nn.AdaptiveAvgPool2d(1),
        "sigmoid": nn.Sigmoid(),
        "softmax": nn.Softmax(-1),
        "hardswish": nn.Hardswish(),
    }
    parts = {name: part.half() for name, part in parts.items()}
    return of_parts(parts, (noise(*IMAGE).half(),), family=FP16)


@program
def xnn_half_binary():
    operators = {
        "add": torch.add,
        "sub": torch.sub,
        "mul": torch.mul,
        "cat": lambda a, b: torch.cat([a, b], 1),
    }
    inputs = (noise(2, 3, 4).half(), noise(2, 3, 4).half())
    return delegated(Ops(operators), inputs, family=FP16)


@program
def xnn_bfloat16():
    parts = {"linear": nn.Linear(8, 6), "no_bias": nn.Linear(8, 4, bias=False)}
    parts = {name: part.bfloat16() for name, part in parts.items()}
    inputs = (noise(3, 8).bfloat16(),)
    return of_parts(parts, inputs, family=BF16, options={"enable_bf16": True})
