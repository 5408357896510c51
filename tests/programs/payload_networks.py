"""The networks of `payloads.py`: small ones of every family, and single operators in groups."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from harness import Method, Ops
from quantized import PER_CHANNEL
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

NETWORKS = {}
PLAIN = ("vulkan_fp32", "coreml_fp32", "mlx_fp32")
FLOAT16 = ("vulkan_fp16", "coreml_fp16")
ALL = (*PLAIN, *FLOAT16, "mlx_bf16")


@dataclass
class Network:
    """Methods, and the variants (backend and precision) that are written of them. `build` writes the graph
    instruction by instruction, where no exporter does; `refused` are what no reading has code for."""

    methods: dict
    variants: tuple = PLAIN
    sequence: bool = False
    target: str = "iOS17"
    build: Callable | None = None
    refused: tuple = ()


def network(function: Callable):
    """Registers a function that returns a `Network`, under the function's name."""
    NETWORKS[function.__name__] = function
    return function


def forward(module, *cases, dynamic=None, quantize=None, strict=False, **rest):
    """A network of one method."""
    return Network({"forward": Method(module, list(cases), dynamic, quantize, strict)}, **rest)


def noise(*shape):
    """Random values."""
    return torch.randn(*shape)


def settled(module):
    """A network whose normalizations are no identities."""
    for part in module.modules():
        if isinstance(part, (nn.BatchNorm1d, nn.BatchNorm2d)):
            nn.init.uniform_(part.weight, 0.7, 1.4)
            nn.init.normal_(part.bias, 0, 0.2)
            nn.init.normal_(part.running_mean, 0, 0.3)
            nn.init.uniform_(part.running_var, 0.5, 1.5)
        elif isinstance(part, (nn.LayerNorm, nn.GroupNorm)):
            nn.init.uniform_(part.weight, 0.7, 1.4)
            nn.init.normal_(part.bias, 0, 0.2)
    return module.eval()


@network
def mlp():
    module = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4), nn.Softmax(-1))
    return forward(module, (noise(2, 8),), (noise(2, 8),), variants=ALL)


@network
def mlp_dynamic():
    module = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.LayerNorm(16), nn.Linear(16, 4))
    batch = Dim("batch", min=1, max=8)
    cases = [(noise(count, 8),) for count in (3, 1, 5)]
    return forward(settled(module), *cases, dynamic=({0: batch},))


class Mobile(nn.Module):
    """Depthwise convolutions, gates, hard activations."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1, bias=False)
        self.first = nn.BatchNorm2d(8)
        self.depth = nn.Conv2d(8, 8, 3, 1, 1, groups=8, bias=False)
        self.second = nn.BatchNorm2d(8)
        self.down, self.up = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1)
        self.point = nn.Conv2d(8, 8, 1, bias=False)
        self.third = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = F.hardswish(self.first(self.stem(x)))
        y = F.relu6(self.second(self.depth(x)))
        gate = F.adaptive_avg_pool2d(y, 1)
        y = y * F.hardsigmoid(self.up(F.relu(self.down(gate))))
        x = x + self.third(self.point(y))
        return self.head(x.mean((2, 3)))


@network
def mobile():
    return forward(settled(Mobile()), (noise(1, 3, 16, 16),), (noise(1, 3, 16, 16),), variants=ALL)


class Residual(nn.Module):
    """A residual block between pools."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 5, 2, 2, bias=False), nn.BatchNorm2d(8)
        self.a, self.na = nn.Conv2d(8, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8)
        self.b, self.nb = nn.Conv2d(8, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.stem(x))), 3, 2, 1)
        x = F.relu(x + self.nb(self.b(F.relu(self.na(self.a(x))))))
        return self.head(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


@network
def residual():
    return forward(settled(Residual()), (noise(2, 3, 16, 16),), (noise(2, 3, 16, 16),), variants=ALL)


class Attention(nn.Module):
    """Attention of several heads."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.joint, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, mask=None):
        batch, length, width = x.shape
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.joint(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """Attention and two layers."""

    def __init__(self, width=16, heads=2, gelu="none"):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.layers = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(gelu), nn.Linear(2 * width, width)
        )

    def forward(self, x, mask=None):
        x = x + self.attention(self.first(x), mask)
        return x + self.layers(self.second(x))


class Vit(nn.Module):
    """Patches, a token for the class, a block."""

    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 16, 4, 4)
        self.token = nn.Parameter(noise(1, 1, 16))
        self.place = nn.Parameter(noise(1, 17, 16))
        self.block, self.norm, self.head = Block(), nn.LayerNorm(16), nn.Linear(16, 5)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.place
        return self.head(self.norm(self.block(x))[:, 0])


@network
def vit():
    return forward(settled(Vit()), (noise(1, 3, 16, 16),), (noise(1, 3, 16, 16),), variants=ALL)


class Encoder(nn.Module):
    """Texts as unit vectors: embeddings, a mask, the mean of what is no padding."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(40, 16), nn.Embedding(12, 16)
        self.norm, self.block = nn.LayerNorm(16), Block()

    def forward(self, tokens, mask):
        length = tokens.shape[1]
        x = self.words(tokens) + self.places(torch.arange(length))
        wide = mask[:, None, None, :].to(x.dtype)
        x = self.block(self.norm(x), (1.0 - wide) * -10000.0)
        kept = mask.unsqueeze(-1).to(x.dtype)
        x = (x * kept).sum(1) / kept.sum(1).clamp(min=1e-6)
        return F.normalize(x, dim=-1)


def text(length, real):
    """Tokens and a mask that keeps the first `real` of them."""
    mask = (torch.arange(length) < real).to(torch.int64)[None]
    return torch.randint(0, 40, (1, length)), mask


@network
def encoder():
    return forward(settled(Encoder()), text(8, 6), text(8, 3), variants=ALL)


@network
def encoder_dynamic():
    length = Dim("length", min=2, max=12)
    dynamic = ({1: length}, {1: length})
    return forward(settled(Encoder()), text(8, 6), text(5, 5), text(11, 7), dynamic=dynamic)


class Decoder(nn.Module):
    """One token a step: keys and values are kept in buffers, positions are turned."""

    LENGTH, WIDTH, HEADS, KV = 8, 16, 4, 2

    def __init__(self):
        super().__init__()
        size = self.WIDTH // self.HEADS
        self.words = nn.Embedding(30, self.WIDTH)
        self.norm = nn.Parameter(torch.rand(self.WIDTH) + 0.5)
        self.q = nn.Linear(self.WIDTH, self.WIDTH, bias=False)
        self.k = nn.Linear(self.WIDTH, self.KV * size, bias=False)
        self.v = nn.Linear(self.WIDTH, self.KV * size, bias=False)
        self.o = nn.Linear(self.WIDTH, self.WIDTH, bias=False)
        self.gate = nn.Linear(self.WIDTH, 24, bias=False)
        self.up = nn.Linear(self.WIDTH, 24, bias=False)
        self.down = nn.Linear(24, self.WIDTH, bias=False)
        self.head = nn.Linear(self.WIDTH, 30, bias=False)
        self.register_buffer("keys", torch.zeros(1, self.KV, self.LENGTH, size))
        self.register_buffer("values", torch.zeros(1, self.KV, self.LENGTH, size))
        turns = torch.outer(torch.arange(self.LENGTH), 1 / 100 ** (torch.arange(0, size, 2) / size))
        self.register_buffer("cosine", turns.cos(), persistent=False)
        self.register_buffer("sine", turns.sin(), persistent=False)
        self.register_buffer(
            "mask", torch.tril(torch.ones(self.LENGTH, self.LENGTH, dtype=torch.bool))
        )

    def turned(self, x, at):
        cosine, sine = self.cosine[at][None, None], self.sine[at][None, None]
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack([a * cosine - b * sine, a * sine + b * cosine], -1).flatten(-2)

    def normed(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.norm

    def keep(self, k, v, at):
        self.keys[:, :, at] = k
        self.values[:, :, at] = v

    def forward(self, token, at):
        x = self.words(token)
        y = self.normed(x)
        split = lambda z, heads: z.view(1, 1, heads, -1).transpose(1, 2)
        q = self.turned(split(self.q(y), self.HEADS), at)
        k = self.turned(split(self.k(y), self.KV), at)
        self.keep(k, split(self.v(y), self.KV), at)
        groups = self.HEADS // self.KV
        keys = self.keys.repeat_interleave(groups, dim=1)
        values = self.values.repeat_interleave(groups, dim=1)
        y = F.scaled_dot_product_attention(q, keys, values, attn_mask=self.mask[at][None, None])
        x = x + self.o(y.transpose(1, 2).reshape(1, 1, -1))
        y = self.normed(x)
        x = x + self.down(F.silu(self.gate(y)) * self.up(y))
        return self.head(self.normed(x))


def steps(count):
    """A token and its position, one after another."""
    return [(torch.randint(0, 30, (1, 1)), torch.tensor([at])) for at in range(count)]


@network
def decoder():
    variants = ("vulkan_fp32", "coreml_fp32", "coreml_fp16", "vulkan_fp16")
    return forward(
        Decoder(), *steps(5), variants=variants, sequence=True, target="iOS18"
    )


class CopyingDecoder(Decoder):
    """The same, kept by another operator."""

    def keep(self, k, v, at):
        self.keys.index_copy_(2, at, k)
        self.values.index_copy_(2, at, v)


@network
def decoder_copying():
    return forward(CopyingDecoder(), *steps(5), variants=("mlx_fp32",), sequence=True)


class Counter(nn.Module):
    """A state that does not begin at zero's result: the sum of what was given so far."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x):
        self.total.add_(x)
        return self.total * 2.0


@network
def counter():
    cases = [(noise(3),) for _ in range(5)]
    # Vulkan's exporter makes constants of what is kept.
    variants = ("coreml_fp32", "mlx_fp32")
    return forward(Counter(), *cases, variants=variants, sequence=True, target="iOS18")


class Speech(nn.Module):
    """Convolutions over time before a block."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv1d(8, 16, 3, padding=1), nn.Conv1d(16, 16, 3, 2, 1)
        self.place, self.block, self.norm = nn.Parameter(noise(8, 16)), Block(), nn.LayerNorm(16)

    def forward(self, x):
        x = F.gelu(self.b(F.gelu(self.a(x)))).permute(0, 2, 1)
        return self.norm(self.block(x + self.place))


@network
def speech():
    return forward(settled(Speech()), (noise(1, 8, 16),), (noise(1, 8, 16),), variants=ALL)


class Recurrent(nn.Module):
    """A recurrence in both directions."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(6, 8, bidirectional=True, batch_first=True)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        y, (last, _) = self.lstm(x)
        return self.head(y), last


@network
def lstm():
    return forward(Recurrent(), (noise(1, 5, 6),), (noise(1, 5, 6),), variants=(*PLAIN, *FLOAT16))


class Segmentation(nn.Module):
    """Small pictures become large ones again."""

    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, 2, 1)
        self.grouped = nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=4)
        self.up = nn.ConvTranspose2d(8, 6, 4, 2, 1)
        self.odd = nn.ConvTranspose2d(8, 4, 3, 2, 1, output_padding=1)
        self.head = nn.Conv2d(6, 4, 1)

    def forward(self, x):
        x = F.leaky_relu(self.down(x), 0.1)
        x = F.elu(self.grouped(x))
        logits = self.head(torch.tanh(self.up(x)))
        near = F.interpolate(logits, scale_factor=2, mode="nearest")
        return logits + self.odd(x), near.sigmoid(), logits.argmax(1)


@network
def segmentation():
    return forward(Segmentation(), (noise(1, 3, 12, 12),), (noise(1, 3, 12, 12),), variants=(*PLAIN, *FLOAT16))


@network
def index():
    ids = torch.tensor([[0, 2, 1], [3, 0, 2], [1, 1, 5], [4, 3, 0]])
    operators = {
        "gather": lambda x, i: torch.gather(x, 1, i),
        "select": lambda x, i: torch.index_select(x, 0, i[0]),
        "take": lambda x, i: x[i[1]],
        "slice": lambda x, i: x[1:, ::2],
        "select one": lambda x, i: x[:, 1],
        "split": lambda x, i: torch.split(x, [1, 3, 2], 1),
        "flip": lambda x, i: torch.flip(x, [1]),
        "stack": lambda x, i: torch.stack([x, x * 2], 1),
        "cat": lambda x, i: torch.cat([x, x + 1], 0),
        "tile": lambda x, i: x.repeat(2, 1),
        "pad": lambda x, i: F.pad(x, (1, 2), value=0.5),
        "where": lambda x, i: torch.where(x > 0, x, x * 0.1),
        "cumsum": lambda x, i: torch.cumsum(x, 1),
        "largest": lambda x, i: torch.topk(x, 2, dim=1)[0],
        "places": lambda x, i: torch.topk(x, 2, dim=1)[1],
        "transposed": lambda x, i: x.t(),
        "unsqueezed": lambda x, i: x[:, None].squeeze(1),
        "expanded": lambda x, i: x[:, None].expand(4, 3, 6),
        "argmax": lambda x, i: x.argmax(1),
        "argmin": lambda x, i: x.argmin(1),
        "full": lambda x, i: torch.full_like(x, 2.0) + x,
    }
    return forward(Ops(operators), (noise(4, 6), ids), (noise(4, 6), ids))


@network
def unary():
    operators = {
        "abs": torch.abs,
        "neg": torch.neg,
        "exp": torch.exp,
        "sqrt": lambda x: torch.sqrt(x.abs() + 0.1),
        "rsqrt": lambda x: torch.rsqrt(x.abs() + 0.5),
        "log": lambda x: torch.log(x.abs() + 0.5),
        "sin": torch.sin,
        "cos": torch.cos,
        "tanh": torch.tanh,
        "sigmoid": torch.sigmoid,
        "relu": torch.relu,
        "relu6": F.relu6,
        "gelu": F.gelu,
        "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
        "silu": F.silu,
        "hardswish": F.hardswish,
        "hardsigmoid": F.hardsigmoid,
        "leaky": lambda x: F.leaky_relu(x, 0.2),
        "elu": F.elu,
        "clamp": lambda x: x.clamp(-0.5, 0.8),
        "clamp low": lambda x: x.clamp(min=-0.5),
        "square": torch.square,
        "cube": lambda x: x.pow(3),
        "reciprocal": lambda x: 1.0 / (x.abs() + 0.5),
        "floor": torch.floor,
        "ceil": torch.ceil,
        "round": torch.round,
        "sign": torch.sign,
        "erf": torch.erf,
        "softplus": F.softplus,
        "tan": torch.tan,
        "atan": torch.atan,
        "asin": lambda x: torch.asin(x * 0.2),
        "acos": lambda x: torch.acos(x * 0.2),
        "sinh": torch.sinh,
        "cosh": torch.cosh,
        "log1p": lambda x: torch.log1p(x.abs()),
        "expm1": torch.expm1,
        "log2": lambda x: torch.log2(x.abs() + 0.5),
        "log10": lambda x: torch.log10(x.abs() + 0.5),
        "trunc": torch.trunc,
        "prelu": lambda x: F.prelu(x, torch.tensor([0.3])),
    }
    return forward(Ops(operators), (noise(3, 5),), (noise(3, 5),))


@network
def binary():
    operators = {
        "add": lambda x, y: x + y,
        "sub": lambda x, y: x - y,
        "scaled": lambda x, y: torch.add(x, y, alpha=2),
        "mul": lambda x, y: x * y,
        "div": lambda x, y: x / (y.abs() + 0.5),
        "floor div": lambda x, y: torch.floor_divide(x, y.abs() + 0.5),
        "pow": lambda x, y: (x.abs() + 0.1).pow(y),
        "maximum": torch.maximum,
        "minimum": torch.minimum,
        "eq": lambda x, y: x == y,
        "ne": lambda x, y: x != y,
        "lt": lambda x, y: x < y,
        "le": lambda x, y: x <= y,
        "gt": lambda x, y: x > y,
        "ge": lambda x, y: x >= y,
        "and": lambda x, y: (x > 0) & (y > 0),
        "or": lambda x, y: torch.logical_or(x > 0, y > 0),
        "not": lambda x, y: torch.logical_not(x > 0),
        "remainder": lambda x, y: torch.remainder(x, y.abs() + 0.5),
        "scalar": lambda x, y: (3 - x) * 0.5 + 1,
        "broadcast": lambda x, y: x[:, :1] * y[:1],
        "matmul": lambda x, y: x @ y.t(),
        "batches": lambda x, y: torch.matmul(x[None].expand(2, 3, 4), y.t()[None].expand(2, 4, 3)),
        "addmm": lambda x, y: torch.addmm(x[:, :3], x, y.t()),
        "atan2": torch.atan2,
    }
    x, y = noise(3, 4), noise(3, 4)
    return forward(Ops(operators), (x, y), (y, x))


@network
def reductions():
    operators = {
        "sum": lambda x: x.sum(-1),
        "sum of all": lambda x: x.sum(),
        "kept": lambda x: x.sum((1, 2), keepdim=True),
        "mean": lambda x: x.mean(1),
        "amax": lambda x: x.amax(2),
        "amin": lambda x: x.amin(1, keepdim=True),
        "var": lambda x: x.var(-1),
        "population": lambda x: x.var(-1, unbiased=False),
        "norm": lambda x: torch.linalg.vector_norm(x, dim=-1),
        "softmax": lambda x: x.softmax(1),
        "log softmax": lambda x: F.log_softmax(x, -1),
        "logsumexp": lambda x: torch.logsumexp(x, -1),
        "max": lambda x: x.max(1)[0],
        "any": lambda x: (x > 1).any(-1),
        "all": lambda x: (x > -1).all(-1),
        "prod": lambda x: x.prod(1),
    }
    return forward(Ops(operators), (noise(2, 3, 4),), (noise(2, 3, 4),))


class Norms(nn.Module):
    """Normalizations that no convolution takes up."""

    def __init__(self):
        super().__init__()
        self.group, self.layer = nn.GroupNorm(2, 4), nn.LayerNorm([4, 6, 6])
        self.batch, self.instance = nn.BatchNorm2d(4), nn.InstanceNorm2d(4, affine=True)
        self.root = nn.Parameter(torch.rand(6) + 0.5)

    def forward(self, x):
        root = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.root
        return self.group(x), self.layer(x), self.batch(x), self.instance(x), root


@network
def norms():
    return forward(settled(Norms()), (noise(1, 4, 6, 6),), (noise(1, 4, 6, 6),))


@network
def windows():
    operators = {
        "max": lambda x: F.max_pool2d(x, 2, 2),
        "overlapping": lambda x: F.max_pool2d(x, 3, 2, 1),
        "avg": lambda x: F.avg_pool2d(x, 2, 2),
        "padded": lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        "with padding": lambda x: F.avg_pool2d(x, 3, 2, 1),
        "global": lambda x: F.adaptive_avg_pool2d(x, 1),
        "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
        "corners": lambda x: F.interpolate(x, size=(15, 15), mode="bilinear", align_corners=True),
        "nearest": lambda x: F.interpolate(x, scale_factor=2, mode="nearest"),
        "shuffled": lambda x: F.pixel_shuffle(x, 2),
    }
    return forward(Ops(operators), (noise(1, 4, 8, 8),), (noise(1, 4, 8, 8),))


class Wide(nn.Module):
    """Layers wide enough for groups of weights."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(64, 64), nn.Linear(64, 32, bias=False)

    def forward(self, x):
        return self.b(F.relu(self.a(x)))


def int4(module, method):
    """Weights of 4 bits, a scale for each 32 of them."""
    from torchao.quantization.granularity import PerGroup
    from torchao.quantization.quant_api import IntxWeightOnlyConfig, quantize_

    quantize_(module, IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32)))
    return module


def int8(module, method):
    """Weights of 8 bits, a scale for each row."""
    from torchao.quantization.granularity import PerAxis
    from torchao.quantization.quant_api import IntxWeightOnlyConfig, quantize_

    quantize_(module, IntxWeightOnlyConfig(weight_dtype=torch.int8, granularity=PerAxis(0)))
    return module


def int8_groups(module, method):
    """Weights of 8 bits, a scale for each 32 of them."""
    from torchao.quantization.granularity import PerGroup
    from torchao.quantization.quant_api import IntxWeightOnlyConfig, quantize_

    quantize_(module, IntxWeightOnlyConfig(weight_dtype=torch.int8, granularity=PerGroup(32)))
    return module


def dynamic_int4(module, method):
    """Rows of activations in 8 bits, weights of 4."""
    from torchao.quantization.granularity import PerGroup
    from torchao.quantization.quant_api import Int8DynamicActivationIntxWeightConfig, quantize_

    config = Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int4, weight_granularity=PerGroup(32)
    )
    quantize_(module, config)
    return module


@network
def wide_int4():
    variants = ("vulkan_4w", "coreml_fp32", "coreml_fp16", "mlx_fp32")
    return forward(Wide(), (noise(2, 64),), (noise(2, 64),), quantize=int4, variants=variants, target="iOS18")


@network
def wide_int8():
    variants = ("coreml_fp32", "coreml_fp16")
    return forward(Wide(), (noise(2, 64),), (noise(2, 64),), quantize=int8, variants=variants, target="iOS18")


@network
def wide_int8_groups():
    return forward(Wide(), (noise(2, 64),), (noise(2, 64),), quantize=int8_groups, variants=("mlx_fp32",))


@network
def wide_8da4w():
    return forward(Wide(), (noise(2, 64),), (noise(2, 64),), quantize=dynamic_int4, variants=("vulkan_8da4w",))


@network
def mobile_int8():
    cases = [(noise(1, 3, 16, 16),) for _ in range(3)]
    return forward(settled(Mobile()), *cases, quantize=PER_CHANNEL, variants=("vulkan_int8",))


@network
def residual_int8():
    cases = [(noise(2, 3, 16, 16),) for _ in range(3)]
    return forward(settled(Residual()), *cases, quantize=PER_CHANNEL, variants=("vulkan_int8",))


class Pieces(nn.Module):
    """What the other networks have not."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 64)
        self.up = nn.ConvTranspose1d(4, 3, 4, 2, 1)

    def forward(self, x, ids):
        both = torch.logical_and(x > 0, x < 1)
        return self.words(ids), self.up(x), x.repeat_interleave(2, dim=1), both


def int4_words(module, method):
    """A table of words in 4 bits, a scale for each 32 of them."""
    from torchao.quantization.granularity import PerGroup
    from torchao.quantization.quant_api import IntxWeightOnlyConfig, quantize_

    config = IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32))
    quantize_(module, config, filter_fn=lambda part, name: isinstance(part, nn.Embedding))
    return module


class LanguageLayers(nn.Module):
    """The layers of a decoder with 12 words, four heads of queries and two of keys."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(12, 16)
        self.qkv, self.out, self.head = (
            nn.Linear(16, 32, bias=False),
            nn.Linear(16, 16),
            nn.Linear(16, 12),
        )


def language(decoder, variant):
    """A decoder (its class) that takes a sequence in four steps."""
    cases = [
        (torch.randint(0, 12, (1, count)), torch.tensor([place]))
        for count, place in ((5, 0), (1, 5), (3, 6), (1, 9))
    ]
    length = Dim("length", min=1, max=8)
    return forward(
        decoder(), *cases, dynamic=({1: length}, None), variants=(variant,), sequence=True
    )


@network
def pieces():
    case = (noise(1, 4, 8), torch.tensor([[1, 7, 3]]))
    return forward(Pieces(), case, quantize=int4_words, variants=("mlx_fp32",))


@network
def methods():
    """Two methods that share weights."""
    inner = nn.Linear(4, 4)
    return Network(
        {
            "forward": Method(nn.Sequential(inner, nn.ReLU()), [(noise(2, 4),)]),
            "other": Method(nn.Sequential(inner, nn.Sigmoid()), [(noise(3, 4),)]),
        },
        variants=PLAIN,
    )
