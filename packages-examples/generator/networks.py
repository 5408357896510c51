"""The networks: small, real in structure, random in weights.

Every constructor seeds the generator first, so a network does not depend on which ones were built
before it. Sizes are chosen so that each exported file stays well below 60 KB.
"""

import torch
from torch import nn
from torch.nn import functional as F


def seeded(seed, build):
    """A network in eval mode whose weights depend on `seed` alone."""
    torch.manual_seed(seed)
    return build().eval().requires_grad_(False)


class Separable(nn.Module):
    """Depthwise 3x3, then pointwise 1x1, each with batch norm and ReLU."""

    def __init__(self, inner, outer, stride=1):
        super().__init__()
        self.depthwise = nn.Conv2d(inner, inner, 3, stride, 1, groups=inner, bias=False)
        self.depthwise_norm = nn.BatchNorm2d(inner)
        self.pointwise = nn.Conv2d(inner, outer, 1, bias=False)
        self.pointwise_norm = nn.BatchNorm2d(outer)

    def forward(self, x):
        x = torch.relu(self.depthwise_norm(self.depthwise(x)))
        return torch.relu(self.pointwise_norm(self.pointwise(x)))


class Classifier(nn.Module):
    """Image classifier: stem, two separable blocks, global pooling, linear head."""

    def __init__(self, classes=10):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1)
        self.blocks = nn.Sequential(Separable(8, 16, 2), Separable(16, 24, 2))
        self.head = nn.Linear(24, classes)

    def forward(self, image):
        x = self.blocks(torch.relu(self.stem(image)))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Detector(nn.Module):
    """Single-shot detector: one grid of cells, each with box offsets and class scores."""

    def __init__(self, classes=4):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1)
        self.blocks = nn.Sequential(Separable(8, 16, 2), Separable(16, 16, 2))
        self.boxes = nn.Conv2d(16, 4, 1)
        self.scores = nn.Conv2d(16, classes, 1)

    def forward(self, image):
        x = self.blocks(torch.relu(self.stem(image)))
        return self.boxes(x), torch.sigmoid(self.scores(x))


class Segmenter(nn.Module):
    """Encoder, decoder and one skip connection; a score a class and pixel."""

    def __init__(self, classes=5):
        super().__init__()
        self.entry = nn.Conv2d(3, 8, 3, 2, 1)
        self.down = nn.Conv2d(8, 16, 3, 2, 1)
        self.up = nn.Conv2d(16, 8, 1)
        self.out = nn.Conv2d(8, classes, 1)

    def forward(self, image):
        skip = torch.relu(self.entry(image))
        x = self.up(torch.relu(self.down(skip)))
        x = F.interpolate(x, scale_factor=2.0, mode="nearest") + skip
        return F.interpolate(self.out(x), scale_factor=2.0, mode="nearest")


class Stylizer(nn.Module):
    """Image to image: one convolution down, a residual pair, one up."""

    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(3, 12, 3, 2, 1)
        self.first = nn.Conv2d(12, 12, 3, 1, 1)
        self.second = nn.Conv2d(12, 12, 3, 1, 1)
        self.out = nn.Conv2d(12, 3, 3, 1, 1)

    def forward(self, image):
        x = torch.relu(self.down(image))
        x = x + self.second(torch.relu(self.first(x)))
        return torch.sigmoid(self.out(F.interpolate(x, scale_factor=2.0, mode="nearest")))


class VoiceActivity(nn.Module):
    """Speech probability a frame, from log-mel frames, with convolutions over time."""

    def __init__(self, mels=16, width=16):
        super().__init__()
        self.first = nn.Conv1d(mels, width, 3, 1, 1)
        self.second = nn.Conv1d(width, width, 3, 1, 1)
        self.out = nn.Conv1d(width, 1, 1)

    def forward(self, mel):
        x = torch.relu(self.first(mel))
        return torch.sigmoid(self.out(torch.relu(self.second(x))))


class Attention(nn.Module):
    """Multi-head attention with separate projections; `memory` makes it cross attention."""

    def __init__(self, width, heads, head_size=8, memory=None):
        super().__init__()
        self.heads, self.head_size = heads, head_size
        self.query = nn.Linear(width, heads * head_size)
        self.key = nn.Linear(memory or width, heads * head_size)
        self.value = nn.Linear(memory or width, heads * head_size)
        self.out = nn.Linear(heads * head_size, width)

    def forward(self, x, memory=None, bias=None):
        memory = x if memory is None else memory
        scores = self._split(self.query(x)) @ self._split(self.key(memory)).transpose(-2, -1)
        scores = scores * self.head_size**-0.5
        weights = torch.softmax(scores if bias is None else scores + bias, dim=-1)
        mixed = (weights @ self._split(self.value(memory))).transpose(1, 2)
        return self.out(mixed.reshape(x.shape[0], x.shape[1], self.heads * self.head_size))

    def _split(self, x):
        return x.view(x.shape[0], x.shape[1], self.heads, self.head_size).transpose(1, 2)


class Block(nn.Module):
    """Pre-norm transformer block, with cross attention on request."""

    def __init__(self, width, heads, inner, cross=False):
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.cross_norm = nn.LayerNorm(width) if cross else None
        self.cross = Attention(width, heads) if cross else None
        self.feed_norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, inner)
        self.down = nn.Linear(inner, width)

    def forward(self, x, memory=None, bias=None):
        x = x + self.attention(self.attention_norm(x), bias=bias)
        if self.cross is not None:
            x = x + self.cross(self.cross_norm(x), memory)
        return x + self.down(torch.relu(self.up(self.feed_norm(x))))


class SentenceEncoder(nn.Module):
    """Transformer layers, mean pooling, output of unit length."""

    def __init__(self, vocabulary=64, width=32, longest=24, layers=1):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.randn(1, longest, width) * 0.1)
        self.layers = nn.ModuleList(Block(width, heads=1, inner=32) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, input_ids):
        x = self.tokens(input_ids) + self.positions[:, : input_ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        pooled = self.norm(x).mean(dim=1)
        return pooled / pooled.pow(2).sum(dim=1, keepdim=True).sqrt()


class WordBag(nn.Module):
    """The mean of the word vectors, two linear layers, output of unit length."""

    def __init__(self, vocabulary=64, width=16):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)

    def forward(self, input_ids):
        x = self.second(torch.relu(self.first(self.tokens(input_ids).mean(dim=1))))
        return x / x.pow(2).sum(dim=1, keepdim=True).sqrt()


class ImageEncoder(nn.Module):
    """A separable convnet that ends in a vector of unit length."""

    def __init__(self, width=16):
        super().__init__()
        self.backbone = Classifier(classes=width)

    def forward(self, image):
        x = self.backbone(image)
        return x / x.pow(2).sum(dim=1, keepdim=True).sqrt()


class AudioEncoder(nn.Module):
    """Log-mel frames to states: a strided convolution, then one transformer block."""

    def __init__(self, mels=16, width=12):
        super().__init__()
        self.entry = nn.Conv1d(mels, width, 3, 2, 1)
        self.block = Block(width, heads=1, inner=16)

    def forward(self, mel):
        return self.block(torch.relu(self.entry(mel)).transpose(1, 2))


class TextDecoder(nn.Module):
    """Token ids and encoder states to logits: causal self attention, then cross attention."""

    def __init__(self, vocabulary=64, width=12, longest=12):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.block = Block(width, heads=1, inner=16, cross=True)
        self.head = nn.Linear(width, vocabulary)
        self.register_buffer("mask", torch.full((longest, longest), -1e4).triu(1))

    def forward(self, tokens, states):
        length = tokens.shape[1]
        return self.head(self.block(self.tokens(tokens), states, self.mask[:length, :length]))


class RMSNorm(nn.Module):
    """Root-mean-square norm with a learned scale."""

    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.scale


class LlamaLayer(nn.Module):
    """Rotary grouped-query attention over a key/value cache, then a gated feed-forward."""

    def __init__(self, width, heads, kv_heads, size, inner, longest):
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, size
        self.attention_norm, self.feed_norm = RMSNorm(width), RMSNorm(width)
        self.query = nn.Linear(width, heads * self.size, bias=False)
        self.key = nn.Linear(width, kv_heads * self.size, bias=False)
        self.value = nn.Linear(width, kv_heads * self.size, bias=False)
        self.out = nn.Linear(heads * self.size, width, bias=False)
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)
        self.register_buffer("key_cache", torch.zeros(1, longest, kv_heads, self.size))
        self.register_buffer("value_cache", torch.zeros(1, longest, kv_heads, self.size))

    def forward(self, x, positions, cosine, sine, bias):
        x = x + self._attend(self.attention_norm(x), positions, cosine, sine, bias)
        normed = self.feed_norm(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))

    def _attend(self, x, positions, cosine, sine, bias):
        length = x.shape[1]
        query = rotate(self.query(x).view(1, length, self.heads, self.size), cosine, sine)
        key = rotate(self.key(x).view(1, length, self.kv_heads, self.size), cosine, sine)
        value = self.value(x).view(1, length, self.kv_heads, self.size)
        self.key_cache[:, positions] = key
        self.value_cache[:, positions] = value
        keys = self._share(self.key_cache)
        values = self._share(self.value_cache)
        scores = query.transpose(1, 2) @ keys.transpose(-2, -1) * self.size**-0.5
        mixed = torch.softmax(scores + bias, dim=-1) @ values
        return self.out(mixed.transpose(1, 2).reshape(1, length, self.heads * self.size))

    def _share(self, cache):
        """[1, longest, kv_heads, size] → [1, heads, longest, size]"""
        return cache.transpose(1, 2).repeat(1, self.heads // self.kv_heads, 1, 1)


def rotate(x, cosine, sine):
    """Rotary position embedding on the two halves of the last dimension."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, first * sine + second * cosine), dim=-1)


class Llama(nn.Module):
    """A decoder-only language model with its own key/value cache: logits of the last token."""

    def __init__(self, vocabulary=64, width=32, layers=1, inner=32, longest=32):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(
            LlamaLayer(width, 2, 1, 8, inner, longest) for _ in range(layers)
        )
        self.norm = RMSNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        half = 4
        angles = torch.outer(torch.arange(longest), 10000.0 ** (-torch.arange(half) / half))
        self.register_buffer("cosine", angles.cos()[:, None, :])
        self.register_buffer("sine", angles.sin()[:, None, :])
        self.register_buffer("steps", torch.arange(longest).float())

    def forward(self, tokens, positions):
        x = self.tokens(tokens)
        cosine, sine = self.cosine[positions], self.sine[positions]
        later = (self.steps - positions[:, None].float()).clamp(0.0, 1.0)
        bias = (later * -1e4).to(x.dtype)
        for layer in self.layers:
            x = layer(x, positions, cosine, sine, bias)
        return self.head(self.norm(x[:, -1]))


class PromptEncoder(nn.Module):
    """Prompt ids to states, for cross attention."""

    def __init__(self, vocabulary=64, width=16):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.block = Block(width, heads=1, inner=16)

    def forward(self, input_ids):
        return self.block(self.tokens(input_ids))


class SpeechSynthesizer(nn.Module):
    """Phoneme ids to mel frames, one frame a phoneme, through two transformer layers."""

    def __init__(self, phonemes=64, width=16, mels=16):
        super().__init__()
        self.tokens = nn.Embedding(phonemes, width)
        self.layers = nn.ModuleList(Block(width, heads=2, inner=16) for _ in range(2))
        self.mel = nn.Linear(width, mels)

    def forward(self, phonemes):
        x = self.tokens(phonemes)
        for layer in self.layers:
            x = layer(x)
        return self.mel(x)


class Denoiser(nn.Module):
    """One-level UNet on latents: time embedding, text cross attention at the bottom, one skip."""

    def __init__(self, latent=4, width=12):
        super().__init__()
        self.entry = nn.Conv2d(latent, width, 3, 1, 1)
        self.time = nn.Linear(1, width)
        self.down = nn.Conv2d(width, width, 3, 2, 1)
        self.cross = Attention(width, heads=1, memory=16)
        self.out = nn.Conv2d(2 * width, latent, 3, 1, 1)

    def forward(self, latents, timestep, states):
        entry = torch.relu(self.entry(latents) + self.time(timestep)[:, :, None, None])
        low = torch.relu(self.down(entry))
        batch, width, height, breadth = low.shape
        flat = low.flatten(2).transpose(1, 2)
        flat = flat + self.cross(flat, states)
        low = flat.transpose(1, 2).reshape(batch, width, height, breadth)
        up = F.interpolate(low, scale_factor=2.0, mode="nearest")
        return self.out(torch.cat((up, entry), dim=1))


class ImageDecoder(nn.Module):
    """The decoding half of a variational autoencoder: latents to pixels, four times larger."""

    def __init__(self, latent=4, width=12):
        super().__init__()
        self.entry = nn.Conv2d(latent, width, 3, 1, 1)
        self.middle = nn.Conv2d(width, width, 3, 1, 1)
        self.out = nn.Conv2d(width, 3, 3, 1, 1)

    def forward(self, latents):
        x = F.interpolate(torch.relu(self.entry(latents)), scale_factor=2.0, mode="nearest")
        x = F.interpolate(torch.relu(self.middle(x)), scale_factor=2.0, mode="nearest")
        return torch.sigmoid(self.out(x))


class TextFinder(nn.Module):
    """Text detection: a probability map at a quarter of the image's resolution."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, 2, 1)
        self.block = Separable(8, 16, 2)
        self.out = nn.Conv2d(16, 1, 1)

    def forward(self, image):
        return torch.sigmoid(self.out(self.block(torch.relu(self.stem(image)))))


class TextReader(nn.Module):
    """Text recognition: columns of a text line to character scores, for CTC decoding."""

    def __init__(self, characters=40):
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, 2, 1)
        self.block = Separable(8, 12, 2)
        self.head = nn.Linear(12 * 4, characters)

    def forward(self, line):
        x = self.block(torch.relu(self.stem(line)))
        return torch.log_softmax(self.head(x.permute(0, 3, 1, 2).flatten(2)), dim=-1)
