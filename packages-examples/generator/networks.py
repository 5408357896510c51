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
    """Single-shot detector: a grid of cells, each with one box, its score and its class."""

    def __init__(self, size=64, classes=4):
        super().__init__()
        self.stem = nn.Conv2d(3, 12, 3, 2, 1)
        self.blocks = nn.Sequential(
            Separable(12, 24, 2), Separable(24, 32, 2), Separable(32, 32), Separable(32, 32)
        )
        self.boxes = nn.Conv2d(32, 4, 1)
        self.scores = nn.Conv2d(32, classes, 1)
        self.stride = 8
        middles = (torch.arange(size // self.stride) + 0.5) * self.stride
        rows, columns = torch.meshgrid(middles, middles, indexing="ij")
        self.register_buffer(
            "middles", torch.stack((columns, rows, columns, rows), 2).view(1, -1, 4)
        )
        self.register_buffer("signs", torch.tensor([-1.0, -1.0, 1.0, 1.0]) * self.stride)

    def forward(self, image):
        sides, scores = self.cells(image)
        scores = torch.sigmoid(scores.amax(2)), scores.argmax(2).to(image.dtype)
        return self.middles + sides * self.signs, *scores

    def cells(self, image):
        """How far each side of a cell's box is, in cells, and the cell's logits by class."""
        x = self.blocks(torch.relu(self.stem(image)))
        sides = torch.exp(self.boxes(x)).flatten(2).transpose(1, 2)
        return sides, self.scores(x).flatten(2).transpose(1, 2)


class Looker(nn.Module):
    """A picture of bytes to rows of embeddings: one for each part of a grid."""

    def __init__(self, width, side=4):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, 2, 1)
        self.blocks = nn.Sequential(
            Separable(16, 32, 2), Separable(32, 40), Separable(40, 40, 2), Separable(40, 40)
        )
        self.out = nn.Linear(40, width)
        self.side = side

    def forward(self, image):
        x = self.blocks(torch.relu(self.stem(image / 127.5 - 1)))
        return self.out(F.avg_pool2d(x, x.shape[2] // self.side).flatten(2).transpose(1, 2))


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
    """Probabilities of silence and of speech for each frame of samples: the loudness of bands, then
    convolutions over time."""

    def __init__(self, size=512, bands=16, width=16):
        super().__init__()
        self.cosines, self.sines = (nn.Parameter(it) for it in band_filters(size, bands))
        self.first = nn.Conv1d(bands, width, 5, 1, 2)
        self.second = nn.Conv1d(width, width, 5, 1, 4, 2)
        self.out = nn.Conv1d(width, 2, 1)

    def forward(self, frames):
        cosine, sine = frames @ self.cosines, frames @ self.sines
        loudness = torch.log(cosine * cosine + sine * sine + 1e-5) * 0.2
        x = torch.relu(self.first(loudness.transpose(0, 1).unsqueeze(0)))
        x = self.out(torch.relu(self.second(x)))
        return torch.softmax(x, dim=1).transpose(1, 2)


def band_filters(size, bands):
    """Cosines and sines of `bands` pitches from 100 to 6,000 Hz, in a bell each."""
    time = (torch.arange(size) - size / 2) / 16000
    pitches = torch.logspace(2, 3.78, bands)
    bell = torch.exp(-((time[:, None] * pitches / 3) ** 2)) * 2 * pitches**0.5 / size**0.5
    phase = 6.2832 * time[:, None] * pitches
    return torch.cos(phase) * bell, torch.sin(phase) * bell


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
    """Log-mel frames to words: convolutions give a class to every frame; each run of frames with one
    word becomes a row of the states, with the word and the time of its end."""

    def __init__(self, words, mels=80, width=32, most=64):
        super().__init__()
        self.entry = nn.Conv1d(mels, width, 5, 2, 2)
        self.layers = nn.ModuleList(
            nn.Conv1d(width, width, 5, 1, 2 * apart, apart) for apart in (1, 3, 6)
        )
        self.out = nn.Conv1d(width, words + 1, 1)
        self.register_buffer("rows", torch.arange(1.0, most + 1)[:, None])

    def frames(self, mel):
        """Scores of the classes for every second frame; class 0 is no word."""
        x = torch.relu(self.entry(mel))
        for layer in self.layers:
            x = x + torch.relu(layer(x))
        return self.out(x)

    def forward(self, mel):
        scores = self.frames(mel)[0].T
        best = (scores >= scores.amax(1, keepdim=True)).to(mel.dtype)[:, 1:]
        before = torch.cat((torch.zeros_like(best[:1]), best[:-1]))
        starts = torch.relu(best - before)
        count = starts.sum(1).cumsum(0)
        row = torch.relu(1 - (count - self.rows).abs())
        words = row @ starts
        ticks = torch.arange(len(scores), dtype=mel.dtype)
        ends = (row * best.sum(1) * ticks).amax(1, keepdim=True)
        return torch.cat((words, ends), 1)[None]


class TextDecoder(nn.Module):
    """Token ids and the encoder's words to logits: words in turn between the times of a start and an
    end. `kinds` says for each token whether it is a word, and whether it is a time; words are the
    first tokens, times the last ones."""

    def __init__(self, kinds, end, silence, first_time):
        super().__init__()
        self.register_buffer("kinds", kinds)
        rest = torch.zeros(3, len(kinds))
        rest[0, first_time], rest[1, end], rest[2, silence] = 40, 30, 50
        self.register_buffer("rest", rest)
        self.others = len(kinds) - int(kinds[:, 0].sum())
        time = torch.arange(len(kinds)) - float(first_time)
        self.register_buffer("time", torch.where(time >= 0, time, 9999.0))

    def forward(self, tokens, states):
        kinds = self.kinds[tokens[0]]
        said = kinds[:, :1].cumsum(0)
        rows = torch.arange(states.shape[1], device=states.device)
        following = torch.relu(1 - (said - rows).abs()) @ states[0]
        last = torch.relu(1 - (said - 1 - rows).abs()) @ states[0]
        words = following[:, :-1]
        has_more = words.sum(1, keepdim=True)
        # A time in front: the end of the text is next, unless a word is.
        is_time = kinds[:, 1:]
        is_start = (1 - is_time) * (1 - kinds[:, :1])
        nothing = is_start * (1 - has_more)
        rest = torch.cat((is_start, is_time * (1 - has_more), nothing), 1) @ self.rest
        ends = kinds[:, :1] * (1 - has_more)
        closing = ends * torch.relu(40 - 4 * (self.time - last[:, -1:]).abs())
        spoken = F.pad(40 * (1 - is_start) * words, (0, self.others))
        return (rest + closing + spoken)[None]


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


class Denoiser(nn.Module):
    """One-level UNet on latents: the step out of 1000, text cross attention at the bottom, one skip.
    It predicts the latents without noise."""

    def __init__(self, latent=4, width=32):
        super().__init__()
        self.entry = nn.Conv2d(latent, width, 3, 1, 1)
        self.time = nn.Sequential(nn.Linear(1, width), nn.ReLU(), nn.Linear(width, width))
        self.down = nn.Conv2d(width, width, 3, 2, 1)
        self.places = nn.Parameter(torch.randn(1, 16, width) * 0.1)
        self.cross = Attention(width, heads=2, memory=16)
        self.low = nn.Conv2d(width, width, 3, 1, 1)
        self.both = nn.Conv2d(2 * width, width, 3, 1, 1)
        self.out = nn.Conv2d(width, latent, 3, 1, 1)

    def forward(self, latents, timestep, states):
        entry = torch.relu(self.entry(latents) + self.time(timestep * 0.001)[:, :, None, None])
        low = torch.relu(self.down(entry))
        batch, width, height, breadth = low.shape
        flat = low.flatten(2).transpose(1, 2) + self.places
        flat = flat + self.cross(flat, states)
        low = flat.transpose(1, 2).reshape(batch, width, height, breadth)
        low = low + torch.relu(self.low(low))
        up = F.interpolate(low, scale_factor=2.0, mode="nearest")
        return self.out(torch.relu(self.both(torch.cat((up, entry), dim=1))))


class LatentEncoder(nn.Module):
    """Pixels to latents of mean 0 and deviation 1, for training the decoder."""

    def __init__(self, latent=4, width=24):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(width, latent, 3, 1, 1),
            nn.BatchNorm2d(latent, affine=False),
        )

    def forward(self, image):
        return self.layers(image)


class ImageDecoder(nn.Module):
    """The decoding half of an autoencoder: latents to pixels, four times larger."""

    def __init__(self, latent=4, width=24):
        super().__init__()
        self.entry = nn.Conv2d(latent, width, 3, 1, 1)
        self.middle = nn.Conv2d(width, width, 3, 1, 1)
        self.out = nn.Conv2d(width, 3, 3, 1, 1)

    def forward(self, latents):
        x = F.interpolate(torch.relu(self.entry(latents)), scale_factor=2.0, mode="nearest")
        x = F.interpolate(torch.relu(self.middle(x)), scale_factor=2.0, mode="nearest")
        return torch.sigmoid(self.out(x))


class TextFinder(nn.Module):
    """Text detection: a probability map at half of the image's resolution, from a coarse look at lines
    and a fine one at letters."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1)
        self.coarse = nn.Sequential(
            Separable(8, 16, 2), Separable(16, 24), Separable(24, 24), Separable(24, 24)
        )
        self.both = Separable(32, 16)
        self.out = nn.Conv2d(16, 1, 1)

    def forward(self, image):
        fine = torch.relu(self.stem(image))
        coarse = F.interpolate(self.coarse(fine), scale_factor=2.0, mode="nearest")
        return torch.sigmoid(self.out(self.both(torch.cat((coarse, fine), dim=1))))


class TextReader(nn.Module):
    """Text recognition: columns of a text line to character scores, for CTC decoding."""

    def __init__(self, characters=40):
        super().__init__()
        self.stem = nn.Conv2d(1, 12, 3, 2, 1)
        self.block = Separable(12, 24, 2)
        self.columns = nn.Linear(24 * 4, 48)
        self.near = nn.Conv1d(48, 48, 3, 1, 1)
        self.head = nn.Linear(48, characters)

    def forward(self, line):
        x = self.block(torch.relu(self.stem(line)))
        x = torch.relu(self.columns(x.permute(0, 3, 1, 2).flatten(2)))
        x = torch.relu(self.near(x.transpose(1, 2))).transpose(1, 2)
        return torch.log_softmax(self.head(x), dim=-1)
