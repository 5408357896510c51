"""Programs whose inputs vary in size: the sizes of the cases include one and the upper bound."""

import torch
from harness import Ops, forward, program
from torch import nn
from torch.export import Dim
from torch.nn import functional as F


def noise(*shape):
    """Random values."""
    return torch.randn(*shape)


def dynamic(network, sizes, *cases, delegated=False):
    """A program for inputs of several sizes."""
    family = "dynamic xnnpack" if delegated else "dynamic"
    options = {} if delegated else None
    return forward(family, network, *cases, dynamic=sizes, options=options)


def batches(delegated):
    """Rows, one to eight of them."""
    network = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3), nn.Softmax(-1))
    rows = Dim("rows", min=1, max=8)
    return dynamic(network, ({0: rows},), *((noise(n, 4),) for n in (3, 1, 8)), delegated=delegated)


@program
def dynamic_batch():
    return batches(delegated=False)


@program
def dynamic_batch_xnnpack():
    return batches(delegated=True)


class Encoder(nn.Module):
    """Attention and a feed-forward layer over a sequence, its padding masked."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 8)
        self.q, self.k, self.v, self.o = (nn.Linear(8, 8) for _ in range(4))
        self.first, self.second = nn.LayerNorm(8), nn.LayerNorm(8)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, ids, mask):
        x = self.words(ids)
        n = ids.shape[1]
        q, k, v = (part(x).view(1, n, 2, 4).transpose(1, 2) for part in (self.q, self.k, self.v))
        scores = q @ k.transpose(2, 3) * 0.5 + (1.0 - mask.float()[:, None, None]) * -1e4
        y = (F.softmax(scores, -1) @ v).transpose(1, 2).reshape(1, n, 8)
        x = self.first(x + self.o(y))
        x = self.second(x + self.down(F.gelu(self.up(x))))
        kept = mask.unsqueeze(-1).float()
        return x, (x * kept).sum(1) / kept.sum(1)


@program
def dynamic_sequence():
    """Positions, one to seven of them."""
    network = nn.Sequential(
        nn.Linear(4, 6), nn.LayerNorm(6), nn.GELU(), nn.Linear(6, 3), nn.Softmax(-1)
    )
    length = Dim("length", min=1, max=7)
    return dynamic(network, ({1: length},), *((noise(1, n, 4),) for n in (3, 1, 7)))


@program
def dynamic_sequence_xnnpack():
    """A transformer's layer for one to seven words."""
    length = Dim("length", min=1, max=7)

    def words(n):
        mask = torch.ones(1, n, dtype=torch.int64)
        mask[0, 3:5] = 0
        return torch.randint(0, 20, (1, n)), mask

    sizes = ({1: length}, {1: length})
    return dynamic(Encoder(), sizes, words(4), words(1), words(7), delegated=True)


def two(delegated):
    """Rows and columns vary, each by itself."""
    operators = {
        "linear": lambda parts, x: parts.linear(x),
        "mean": lambda parts, x: x.mean(1),
        "cat": lambda parts, x: torch.cat([x, x.exp()], 1),
        "softmax": lambda parts, x: x.softmax(1),
        "product": lambda parts, x: x @ x.transpose(1, 2),
    }
    sizes = ({0: Dim("batch", min=1, max=4), 1: Dim("length", min=1, max=5)},)
    cases = [(noise(b, n, 3),) for b, n in ((2, 3), (1, 1), (4, 5))]
    network = Ops(operators, linear=nn.Linear(3, 2))
    return dynamic(network, (sizes,), *cases, delegated=delegated)


@program
def dynamic_two():
    return two(delegated=False)


@program
def dynamic_two_xnnpack():
    return two(delegated=True)


def images(delegated):
    """Pictures of every size."""
    network = nn.Sequential(
        nn.Conv2d(2, 3, 3, stride=2, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(3, 2, 1)
    )
    sizes = ({2: Dim("height", min=7, max=12), 3: Dim("width", min=8, max=16)},)
    cases = [(noise(1, 2, h, w),) for h, w in ((8, 10), (7, 8), (12, 16))]
    return dynamic(network, sizes, *cases, delegated=delegated)


@program
def dynamic_image():
    return images(delegated=False)


@program
def dynamic_image_xnnpack():
    return images(delegated=True)


@program
def dynamic_sizes():
    """Sizes that are computed from others, and sizes that are answers."""
    operators = {
        "arange": lambda x: torch.arange(x.shape[0]),
        "full": lambda x: torch.full((x.shape[0], 2), 1.5),
        "view": lambda x: x.view(x.shape[0] // 2, 2, 3),
        "slice": lambda x: x[: x.shape[0] - 1],
        "end": lambda x: x[1:] - x[:-1],
        "last": lambda x: x[-1],
        "half": lambda x: x[: x.shape[0] // 2],
        "expand": lambda x: x[:1].expand(x.shape[0], 3),
        "repeat": lambda x: x.repeat(2, 1),
        "mean": lambda x: x.sum(0) / x.shape[0],
        "size": lambda x: x.shape[0],
        "twice": lambda x: x.shape[0] * 2 + 1,
    }
    pairs = Dim("pairs", min=1, max=4)
    cases = [(noise(2 * n, 3),) for n in (2, 1, 4)]
    return dynamic(Ops(operators), (({0: 2 * pairs},),), *cases)
