"""The large set: networks of real size with random weights, not committed."""

import torch
from harness import forward, large
from quantized import PER_CHANNEL, int4_groups
from torch import nn
from torch.nn import functional as F

IMAGE = (1, 3, 224, 224)


def noise(*shape):
    """Random values."""
    return torch.randn(*shape)


def pictures(count):
    """Large patches of colour and a little noise: what tells one picture from another remains
    after many layers."""
    patches = F.interpolate(noise(count, 3, 6, 6), IMAGE[2:], mode="bilinear")
    return patches * 1.5 + noise(count, *IMAGE[1:]) * 0.3


def settled(network):
    """A network whose answers depend on its input: normalizations are no identities and have seen
    what they are given, the last layers are not close to zero."""
    for module in network.modules():
        if isinstance(module, nn.Linear):
            module.reset_parameters()
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.7, 1.4)
            nn.init.normal_(module.bias, 0, 0.2)
            # Without a momentum its statistics are plain means.
            module.momentum = None
            module.reset_running_stats()
    network.train()
    with torch.no_grad():
        for _ in range(6):
            network(pictures(4))
    return network.eval()


def delegated(network, *cases, family="large fp32", onnx=True, **rest):
    """A program of XNNPACK's, and the network as ONNX."""
    return forward(family, network, *cases, options={}, onnx=onnx, **rest)


def images():
    """Two cases."""
    return (pictures(1),), (pictures(1),)


def vision(name):
    """One of torchvision's networks."""
    from torchvision import models

    return settled(getattr(models, name)(weights=None))


@large
def mobilenet_v2():
    return delegated(vision("mobilenet_v2"), *images())


@large
def mobilenet_v2_int8():
    network = vision("mobilenet_v2")
    return delegated(network, *images(), family="large int8", quantize=PER_CHANNEL)


@large
def mobilenet_v3_small():
    return delegated(vision("mobilenet_v3_small"), *images())


@large
def resnet18():
    return delegated(vision("resnet18"), *images())


@large
def resnet18_int8():
    network = vision("resnet18")
    return delegated(network, *images(), family="large int8", quantize=PER_CHANNEL)


class Attention(nn.Module):
    """Attention of several heads."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x, mask=None):
        batch, length, width = x.shape
        q, k, v = (
            part(x).view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in (self.q, self.k, self.v)
        )
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.o(y.transpose(1, 2).reshape(batch, length, width))


class Feed(nn.Module):
    """Two linear layers."""

    def __init__(self, width, inner):
        super().__init__()
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class VisionLayer(nn.Module):
    """Normalizations come first."""

    def __init__(self, width, heads):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.feed = Attention(width, heads), Feed(width, 4 * width)

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.feed(self.second(x))


class Vision(nn.Module):
    """ViT-Tiny: 12 layers of width 192 over patches of 16 by 16."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 192, 16, stride=16)
        self.start = nn.Parameter(noise(1, 1, 192))
        self.places = nn.Parameter(noise(1, 197, 192) * 0.1)
        self.layers = nn.Sequential(*(VisionLayer(192, 3) for _ in range(12)))
        self.norm, self.head = nn.LayerNorm(192), nn.Linear(192, 1000)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.start, x], 1) + self.places
        return self.head(self.norm(self.layers(x))[:, 0])


@large
def vit_tiny():
    return delegated(Vision(), *images())


class TextLayer(nn.Module):
    """Normalizations come last."""

    def __init__(self, width, heads):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.feed = Attention(width, heads), Feed(width, 4 * width)

    def forward(self, x, mask):
        x = self.first(x + self.attention(x, mask))
        return self.second(x + self.feed(x))


class Text(nn.Module):
    """MiniLM-L6: 6 layers of width 384; the mean over the words, normalized."""

    def __init__(self, words=30522):
        super().__init__()
        self.words, self.places, self.kinds = (nn.Embedding(n, 384) for n in (words, 512, 2))
        self.norm = nn.LayerNorm(384)
        self.layers = nn.ModuleList(TextLayer(384, 12) for _ in range(6))

    def forward(self, ids, mask):
        places = torch.arange(ids.shape[1])[None]
        x = self.norm(self.words(ids) + self.places(places) + self.kinds.weight[0])
        hidden = (1.0 - mask.float())[:, None, None] * -1e9
        for layer in self.layers:
            x = layer(x, hidden)
        kept = mask.unsqueeze(-1).float()
        return F.normalize((x * kept).sum(1) / kept.sum(1), dim=-1)


def sentences():
    """64 words, some of them padding."""
    mask = torch.ones(1, 64, dtype=torch.int64)
    mask[:, 50:] = 0
    return (torch.randint(0, 30522, (1, 64)), mask), (torch.randint(0, 30522, (1, 64)), mask | 1)


@large
def minilm_l6():
    return delegated(Text(), *sentences())


@large
def minilm_l6_8da4w():
    quantize = int4_groups(32)
    return delegated(Text(), *sentences(), family="large 8da4w", quantize=quantize, onnx=False)


@large
def minilm_l6_dynamic():
    length = torch.export.Dim("length", min=1, max=128)
    sizes = ({1: length}, {1: length})
    cases = [
        (torch.randint(0, 30522, (1, n)), torch.ones(1, n, dtype=torch.int64))
        for n in (64, 1, 17, 128)
    ]
    return delegated(Text(), *cases, family="large dynamic", dynamic=sizes)


@large
def mlp_1024():
    first, second, third = (nn.Linear(1024, 1024) for _ in range(3))
    network = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), third)
    return delegated(network, (noise(1, 1024),), (noise(1, 1024),))


@large
def lstm():
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(64, 128, 2, batch_first=True)
            self.head = nn.Linear(128, 10)

        def forward(self, x):
            return self.head(self.lstm(x)[0][:, -1])

    return delegated(Network(), (noise(1, 20, 64),), (noise(1, 20, 64),))


class DecoderLayer(nn.Module):
    """A layer of a llama: rotary positions, grouped queries, a gated feed-forward layer."""

    def __init__(self, width, heads, groups, longest):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.first, self.second = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.o = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.k, self.v = (nn.Linear(width, groups * self.size, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, 3 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * width, width, bias=False)
        self.register_buffer("keys", torch.zeros(1, groups, longest, self.size))
        self.register_buffer("values", torch.zeros(1, groups, longest, self.size))

    def forward(self, x, place, cos, sin, mask):
        def heads(value, count):
            return value.view(1, 1, count, self.size).transpose(1, 2)

        def turned(value):
            left, right = value.chunk(2, -1)
            return value * cos + torch.cat([-right, left], -1) * sin

        y = self.first(x)
        self.keys[:, :, place] = turned(heads(self.k(y), self.groups))
        self.values[:, :, place] = heads(self.v(y), self.groups)
        many = self.heads // self.groups
        keys, values = (value.repeat_interleave(many, 1) for value in (self.keys, self.values))
        scores = turned(heads(self.q(y), self.heads)) @ keys.transpose(2, 3)
        weights = F.softmax(scores * self.size**-0.5 + mask, -1)
        x = x + self.o((weights @ values).transpose(1, 2).reshape(1, 1, -1))
        y = self.second(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    """A small language model that takes one token a call and keeps what it saw."""

    def __init__(self, words=4096, width=256, layers=4, longest=128):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.layers = nn.ModuleList(DecoderLayer(width, 8, 2, longest) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, words, bias=False)
        speeds = 10000.0 ** (-torch.arange(0, 32, 2) / 32)
        angles = torch.outer(torch.arange(longest).float(), speeds).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        self.register_buffer("mask", torch.full((longest, longest), -1e9).triu(1))

    def forward(self, token, place):
        x = self.words(token)
        cos, sin, mask = self.cos[place], self.sin[place], self.mask[place]
        for layer in self.layers:
            x = layer(x, place, cos, sin, mask)
        return self.head(self.norm(x))


def tokens(count):
    """One token after another."""
    return [(torch.randint(0, 4096, (1, 1)), torch.tensor([i])) for i in range(count)]


@large
def llama_small():
    return delegated(Decoder(), *tokens(6), family="large state", sequence=True, onnx=False)


@large
def llama_small_8da4w():
    return delegated(
        Decoder(),
        *tokens(6),
        family="large state",
        sequence=True,
        quantize=int4_groups(32),
        onnx=False,
    )
