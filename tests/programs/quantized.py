"""Programs whose weights, and mostly values, are whole numbers of few bits."""

import copy

import torch
from blocks import depthwise, squeeze_and_excitation
from harness import forward, program, skipped
from torch import nn
from torch.export import export
from torch.nn import functional as F

INT8 = "xnnpack int8"
DYNAMIC = "xnnpack 8da8w"
INT4 = "xnnpack 8da4w"

skipped("int8 padding outside of a convolution", "the delegate does not load")
skipped("mixed_linear, mixed_mm", "the operators are not exported")
skipped("one int8 convolution used twice", "the delegate does not load: two scales, one bias")


def noise(*shape):
    """Random values."""
    return torch.randn(*shape)


def calibrated(**options):
    """Quantizes by XNNPACK's quantizer, the ranges of values taken from the method's own cases."""

    def quantize(network, method):
        from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
            XNNPACKQuantizer,
            get_symmetric_quantization_config,
        )
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

        config = get_symmetric_quantization_config(**options)
        inputs = method.cases[0]
        graph = export(network, inputs, dynamic_shapes=method.dynamic, strict=False).module()
        prepared = prepare_pt2e(graph, XNNPACKQuantizer().set_global(config))
        for case in method.cases:
            prepared(*case)
        return convert_pt2e(prepared)

    return quantize


PER_CHANNEL = calibrated(is_per_channel=True)
PER_TENSOR = calibrated(is_per_channel=False)
PER_TOKEN = calibrated(is_per_channel=True, is_dynamic=True)
FOUR_BITS = calibrated(is_per_channel=True, is_dynamic=True, weight_qmin=-8, weight_qmax=7)


def linear_weights(config):
    """Quantizes the weights of linear layers by torchao."""

    def quantize(network, _method):
        from torchao.quantization import quantize_

        network = copy.deepcopy(network)
        quantize_(network, config())
        return network

    return quantize


def int4_groups(size):
    """Weights of four bits, a scale for so many of them; activations int8 by row at run time."""

    def config():
        from torchao.quantization import Int8DynamicActivationIntxWeightConfig
        from torchao.quantization.granularity import PerGroup

        return Int8DynamicActivationIntxWeightConfig(
            weight_dtype=torch.int4, weight_granularity=PerGroup(size)
        )

    return linear_weights(config)


def int8_rows():
    """Weights of eight bits, a scale for a row."""

    def config():
        from torchao.quantization import Int8DynamicActivationIntxWeightConfig
        from torchao.quantization.granularity import PerAxis

        return Int8DynamicActivationIntxWeightConfig(
            weight_dtype=torch.int8, weight_granularity=PerAxis(0)
        )

    return linear_weights(config)


def quantized(network, quantize, *cases, family=INT8, **rest):
    """A program of XNNPACK's whose network is quantized."""
    return forward(family, network, *cases, quantize=quantize, options={}, **rest)


class Parts(nn.Module):
    """Networks on the same input, an output each."""

    def __init__(self, *parts):
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, *inputs):
        return tuple(part(*inputs) for part in self.parts)


class Function(nn.Module):
    """A function as a network."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def convolutions():
    """What int8 convolutions there are."""
    return Parts(
        nn.Conv2d(4, 6, 3, padding=1),
        nn.Sequential(nn.Conv2d(4, 5, 3, stride=2, padding=1), nn.ReLU()),
        nn.Conv2d(4, 4, 3, groups=4, padding=1),
        nn.Sequential(nn.Conv2d(4, 8, 3, groups=4, stride=2), nn.Hardtanh(-0.5, 0.5)),
        nn.Conv2d(4, 6, 3, groups=2),
    )


@program
def int8_convolution():
    return quantized(convolutions(), PER_CHANNEL, (noise(1, 4, 6, 5),))


@program
def int8_convolution_per_tensor():
    parts = Parts(
        nn.Sequential(nn.Conv2d(4, 5, 3, padding=1), nn.ReLU()),
        nn.Conv2d(4, 4, 3, groups=4, bias=False),
    )
    return quantized(parts, PER_TENSOR, (noise(1, 4, 6, 5),))


@program
def int8_normalised():
    """A normalisation before its convolution scales and shifts the channels of bytes."""
    norms = nn.BatchNorm2d(6), nn.BatchNorm2d(6)
    for norm in norms:
        nn.init.uniform_(norm.weight, -1, 2)
        nn.init.uniform_(norm.bias, -1, 1)
        nn.init.uniform_(norm.running_mean, -1, 1)
        nn.init.uniform_(norm.running_var, 0.5, 2)
    parts = Parts(
        nn.Sequential(nn.Conv2d(4, 6, 1), nn.MaxPool2d(2), norms[0], nn.ReLU(), nn.Conv2d(6, 5, 3)),
        nn.Sequential(nn.Conv2d(4, 6, 1), nn.MaxPool2d(2), norms[1], nn.Conv2d(6, 5, 3)),
    )
    return quantized(parts.eval(), PER_CHANNEL, (noise(1, 4, 8, 10),))


@program
def int8_transposed():
    parts = Parts(nn.ConvTranspose2d(4, 3, 3), nn.ConvTranspose2d(4, 3, 2, stride=2))
    return quantized(parts, PER_CHANNEL, (noise(1, 4, 4, 3),))


@program
def int8_convolution_1d():
    parts = Parts(nn.Conv1d(4, 6, 3, padding=1), nn.Sequential(nn.Conv1d(4, 4, 3), nn.ReLU()))
    return quantized(parts, PER_CHANNEL, (noise(1, 4, 9),))


@program
def int8_linear():
    parts = Parts(
        nn.Linear(8, 6),
        nn.Linear(8, 3, bias=False),
        nn.Sequential(nn.Linear(8, 5), nn.ReLU()),
        nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)),
    )
    return quantized(parts, PER_CHANNEL, (noise(3, 8),))


@program
def int8_linear_per_tensor():
    parts = Parts(nn.Linear(8, 6), nn.Sequential(nn.Linear(8, 5, bias=False), nn.ReLU()))
    return quantized(parts, PER_TENSOR, (noise(3, 8),))


@program
def int8_binary():
    parts = Parts(
        Function(torch.add),
        Function(torch.mul),
        Function(lambda a, b: torch.relu(a + b)),
        Function(lambda a, b: torch.relu(a * b)),
        Function(lambda a, b: a + b[:, :1]),
        Function(lambda a, b: a * 0.5 + b),
    )
    return quantized(parts, PER_CHANNEL, (noise(2, 3, 4), noise(2, 3, 4) * 3))


@program
def int8_pooling():
    parts = Parts(
        nn.Sequential(nn.Conv2d(3, 4, 1), nn.MaxPool2d(3, 2, 1)),
        nn.Sequential(nn.Conv2d(3, 4, 1), nn.AvgPool2d(2)),
        nn.Sequential(nn.Conv2d(3, 4, 1), Function(lambda x: x.mean((2, 3), keepdim=True))),
        nn.Sequential(nn.Conv2d(3, 4, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5)),
    )
    return quantized(parts, PER_CHANNEL, (noise(1, 3, 6, 6),))


@program
def int8_activations():
    def after(function):
        return nn.Sequential(nn.Linear(6, 6), Function(function))

    parts = Parts(
        after(lambda x: F.hardtanh(x, -0.25, 0.5)),
        after(F.relu6),
        after(lambda x: torch.clamp(x, min=-0.1)),
        after(F.elu),
        after(torch.sigmoid),
        after(lambda x: F.softmax(x, -1)),
        after(F.hardswish),
    )
    return quantized(parts, PER_CHANNEL, (noise(4, 6) * 2,))


@program
def int8_shapes():
    class Shapes(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Conv2d(3, 4, 1)
            self.second = nn.Conv2d(3, 4, 1)

        def forward(self, x):
            y, z = self.first(x), self.second(x)
            return (
                torch.cat([y, z], 1),
                torch.cat([y, z, y], 2),
                torch.cat([y, z, y, z], 3),
                y.permute(0, 2, 3, 1),
                y.reshape(1, 4, -1),
                y[:, :, 1:3],
                y.unsqueeze(0),
            )

    return quantized(Shapes(), PER_CHANNEL, (noise(1, 3, 4, 3),))


@program
def int8_mobile_block():
    """Inverted residual blocks, squeeze and excitation, a classifier."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Sequential(
                nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU6()
            )
            self.expand = nn.Sequential(
                nn.Conv2d(8, 16, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU6()
            )
            self.depth = depthwise()
            self.squeeze = squeeze_and_excitation()
            self.project = nn.Sequential(nn.Conv2d(16, 8, 1, bias=False), nn.BatchNorm2d(8))
            self.classify = nn.Linear(8, 10)

        def forward(self, x):
            x = self.stem(x)
            y = self.depth(self.expand(x))
            y = self.project(self.squeeze(y) * y) + x
            return self.classify(F.adaptive_avg_pool2d(y, 1).flatten(1))

    return quantized(Block(), PER_CHANNEL, (noise(1, 3, 8, 8),))


@program
def int8_residual():
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Sequential(
                nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU()
            )
            self.second = nn.Sequential(
                nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
            )

        def forward(self, x):
            return F.relu(self.second(self.first(x)) + x)

    return quantized(Residual(), PER_CHANNEL, (noise(1, 4, 6, 6),))


@program
def dynamic_int8_linear():
    parts = Parts(
        nn.Linear(8, 6), nn.Linear(8, 3, bias=False), nn.Sequential(nn.Linear(8, 5), nn.ReLU())
    )
    return quantized(
        parts, PER_TOKEN, (noise(3, 8) * torch.tensor([[0.1], [1.0], [50.0]]),), family=DYNAMIC
    )


@program
def dynamic_int8_linear_ranks():
    return quantized(nn.Linear(8, 6), PER_TOKEN, (noise(2, 3, 8),), family=DYNAMIC)


@program
def dynamic_int8_convolution():
    parts = Parts(nn.Conv2d(4, 6, 3, padding=1), nn.Conv2d(4, 3, 1, bias=False))
    return quantized(parts, PER_TOKEN, (noise(1, 4, 5, 4),), family=DYNAMIC)


@program
def dynamic_int4_linear():
    """A scale for each row of weights."""
    parts = Parts(nn.Linear(8, 6), nn.Linear(8, 3, bias=False))
    return quantized(parts, FOUR_BITS, (noise(3, 8),), family=INT4)


@program
def int4_groups_of_32():
    parts = Parts(nn.Linear(64, 10), nn.Linear(64, 6, bias=False))
    return quantized(
        parts, int4_groups(32), (noise(3, 64) * torch.tensor([[0.1], [1.0], [50.0]]),), family=INT4
    )


@program
def int4_groups_of_64():
    network = nn.Sequential(nn.Linear(128, 6), nn.GELU())
    return quantized(network, int4_groups(64), (noise(1, 2, 128),), family=INT4)


@program
def int8_rows_by_token():
    parts = Parts(nn.Linear(16, 10), nn.Linear(16, 6, bias=False))
    return quantized(parts, int8_rows(), (noise(3, 16),), family=DYNAMIC)


@program
def int4_feed_forward():
    """A gated feed-forward layer with a normalization, as language models have it."""

    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.RMSNorm(32)
            self.gate = nn.Linear(32, 64, bias=False)
            self.up = nn.Linear(32, 64, bias=False)
            self.down = nn.Linear(64, 32, bias=False)

        def forward(self, x):
            y = self.norm(x)
            return x + self.down(F.silu(self.gate(y)) * self.up(y))

    return quantized(Gated(), int4_groups(32), (noise(1, 5, 32),), family=INT4)


def ranges(bits):
    """The smallest and the largest whole number of so many bits."""
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


@program
def quantize_and_back():
    """The operators between real values and whole numbers, outside of any delegate."""
    import executorch.kernels.quantized  # noqa: F401
    from torch.ao.quantization.fx import _decomposed  # noqa: F401

    plain = torch.ops.quantized_decomposed
    low, high = ranges(8)
    scales = torch.tensor([0.1, 0.02, 0.5], dtype=torch.float64)
    zeros = torch.tensor([0, 3, -5])

    class Operators(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("scales", scales)
            self.register_buffer("zeros", zeros)

        def forward(self, x):
            one = plain.quantize_per_tensor.default(x, 0.05, 3, low, high, torch.int8)
            byte = plain.quantize_per_tensor.default(x, 0.05, 128, 0, 255, torch.uint8)
            rows = plain.quantize_per_channel.default(
                x, self.scales, self.zeros, 0, low, high, torch.int8
            )
            scale, zero = plain.choose_qparams.tensor(x, low, high, 1e-6, torch.int8)
            chosen = plain.quantize_per_tensor.tensor(x, scale, zero, low, high, torch.int8)
            token_scale, token_zero = plain.choose_qparams_per_token_asymmetric.default(
                x, torch.int8
            )
            tokens = plain.quantize_per_token.default(
                x, token_scale, token_zero, low, high, torch.int8
            )
            return (
                one,
                plain.dequantize_per_tensor.default(one, 0.05, 3, low, high, torch.int8),
                byte,
                plain.dequantize_per_tensor.default(byte, 0.05, 128, 0, 255, torch.uint8),
                rows,
                plain.dequantize_per_channel.default(
                    rows, self.scales, self.zeros, 0, low, high, torch.int8
                ),
                scale,
                zero,
                chosen,
                plain.dequantize_per_tensor.tensor(chosen, scale, zero, low, high, torch.int8),
                token_scale,
                token_zero,
                tokens,
                plain.dequantize_per_token.default(
                    tokens, token_scale, token_zero, low, high, torch.int8, torch.float32
                ),
            )

    return forward("portable quantized", Operators(), (noise(3, 6) * 2,))


class Embedding(nn.Module):
    """Rows looked up in quantized weights."""

    def __init__(self, operator, weight, scales, zeros, low, high):
        super().__init__()
        self.operator, self.low, self.high = operator, low, high
        self.register_buffer("weight", weight)
        self.register_buffer("scales", scales)
        self.register_buffer("zeros", zeros)

    def forward(self, ids):
        return self.operator(self.weight, self.scales, self.zeros, self.low, self.high, ids)


IDS = torch.tensor([[0, 3, 9], [9, 1, 4]])


def embedding(operator, weight, *scales, low, high):
    """Programs of one quantized embedding, with zero points and without."""
    parts = Parts(
        *(
            Embedding(operator, weight, scale, zero, low, high)
            for scale in scales
            for zero in (None, torch.randint(-3, 3, scale.shape).float())
        )
    )
    return forward("portable quantized", parts, (IDS,))


def embedding_operators():
    """The operators of quantized embeddings, registered by importing them."""
    import executorch.exir.passes._quant_patterns_and_replacements  # noqa: F401
    import executorch.kernels.quantized  # noqa: F401

    return torch.ops.quantized_decomposed


@program
def embedding_8_bits():
    operators = embedding_operators()
    weight = torch.randint(-128, 128, (10, 8), dtype=torch.int8)
    scales = torch.rand(10) + 0.1, torch.rand(10, 2) + 0.1
    return embedding(operators.embedding_byte.default, weight, *scales, low=-128, high=127)


@program
def embedding_4_bits():
    """Two weights a byte, the first in the high bits, each eight more than it is."""
    operators = embedding_operators()
    weight = torch.randint(0, 256, (10, 32), dtype=torch.uint8)
    scales = torch.rand(10, 2) + 0.1, torch.rand(10, 1) + 0.1
    return embedding(operators.embedding_4bit.default, weight, *scales, low=-8, high=7)


@program
def embedding_2_bits():
    operators = embedding_operators()
    weight = torch.randint(0, 256, (10, 16), dtype=torch.uint8)
    return embedding(
        operators.embedding_2bit.default, weight, torch.rand(10, 2) + 0.1, low=-2, high=1
    )


@program
def embedding_dtypes():
    """Rows that come out in another dtype than their scales have."""
    operators = embedding_operators()

    class Embeddings(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("bytes", torch.randint(-128, 128, (10, 4), dtype=torch.int8))
            self.register_buffer("fours", torch.randint(0, 256, (10, 16), dtype=torch.uint8))
            self.register_buffer("scales", torch.rand(10, 1) + 0.1)

        def forward(self, ids):
            eight = self.bytes, self.scales, None, -128, 127, ids
            four = self.fours, self.scales, None, -8, 7, ids
            return (
                operators.embedding_byte.dtype(*eight, dtype=torch.float16),
                operators.embedding_byte.dtype(*eight, dtype=torch.float32),
                operators.embedding_4bit.dtype(*four, dtype=torch.float16),
            )

    return forward("portable quantized", Embeddings(), (IDS,))


@program
def embedding_by_torchao():
    """Quantized by torchao and brought together by the exporter, as language models are."""
    embedding_operators()

    def quantize(network, _method):
        from torchao.quantization import IntxWeightOnlyConfig, quantize_
        from torchao.quantization.granularity import PerAxis, PerGroup

        network = copy.deepcopy(network)
        four = IntxWeightOnlyConfig(torch.int4, PerGroup(32))
        eight = IntxWeightOnlyConfig(torch.int8, PerAxis(0))
        quantize_(network.parts[0], four, lambda module, name: isinstance(module, nn.Embedding))
        quantize_(network.parts[1], eight, lambda module, name: isinstance(module, nn.Embedding))
        return network

    parts = Parts(nn.Sequential(nn.Embedding(10, 64)), nn.Sequential(nn.Embedding(10, 8)))
    config = {"do_quant_fusion_and_const_prop": True}
    return forward("portable quantized", parts, (IDS,), quantize=quantize, config=config)
