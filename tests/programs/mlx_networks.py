"""Networks for the instructions of MLX that no exporter writes of ordinary networks: each is PyTorch's answer
beside the graph, instruction by instruction."""

import torch
from harness import Method
from payload_networks import Network, forward, network, noise
from torch import nn
from torch.export import Dim
from torch.nn import functional as F
from written import written

INT32 = 3
FLOAT32 = 6


def by_hand(cases, outputs):
    """A network of labelled outputs, whose graph is written by hand."""
    method, build = written(cases, outputs)
    return Network({"forward": method}, variants=("mlx_fp32",), build=build)


@network
def mlx_elements():
    """Functions of single elements."""
    cases = [(noise(3, 4), noise(4), torch.randint(-9, 9, (3, 4)), torch.randint(1, 9, (4,))) for _ in range(2)]
    infinite = torch.tensor([float("inf"), -float("inf"), 0.0, 1.0])

    def with_noop(g, x):
        g.emit("Noop")
        return g.emit("Contiguous", x=x)

    return by_hand(
        cases,
        [
            ("arcsinh", lambda x, y, i, j: x.asinh(), lambda g, x, y, i, j: g.emit("Arcsinh", x=x)),
            (
                "arccosh",
                lambda x, y, i, j: (x * x + 1).acosh(),
                lambda g, x, y, i, j: g.emit("Arccosh", x=g.emit("Add", a=g.emit("Square", x=x), b=g.constant(torch.ones(1)))),
            ),
            (
                "arctanh",
                lambda x, y, i, j: x.sin().atanh(),
                lambda g, x, y, i, j: g.emit("Arctanh", x=g.emit("Sin", x=x)),
            ),
            ("log add exp", lambda x, y, i, j: torch.logaddexp(x, y), lambda g, x, y, i, j: g.emit("LogAddExp", a=x, b=y)),
            (
                "log add exp of infinities",
                lambda x, y, i, j: torch.logaddexp(infinite, torch.zeros(4)),
                lambda g, x, y, i, j: g.emit("LogAddExp", a=g.constant(infinite), b=g.constant(torch.zeros(4))),
            ),
            (
                "round to decimals",
                lambda x, y, i, j: torch.round(x, decimals=2),
                lambda g, x, y, i, j: g.emit("Round", x=x, decimals=2),
            ),
            (
                "round to tens",
                lambda x, y, i, j: torch.round(x * 50, decimals=-1),
                lambda g, x, y, i, j: g.emit("Round", x=g.emit("Multiply", a=x, b=g.constant(torch.full((1,), 50.0))), decimals=-1),
            ),
            (
                "round integers to tens",
                lambda x, y, i, j: ((i * 7).double() / 10).round().long() * 10,
                lambda g, x, y, i, j: g.emit("Round", x=g.emit("Multiply", a=i, b=g.constant(torch.tensor([7]))), decimals=-1),
            ),
            ("bitwise or", lambda x, y, i, j: i | j, lambda g, x, y, i, j: g.emit("BitwiseOr", a=i, b=j)),
            ("bitwise xor", lambda x, y, i, j: i ^ j, lambda g, x, y, i, j: g.emit("BitwiseXor", a=i, b=j)),
            ("bitwise invert", lambda x, y, i, j: ~i, lambda g, x, y, i, j: g.emit("BitwiseInvert", x=i)),
            (
                "floor divide",
                lambda x, y, i, j: torch.div(x, y, rounding_mode="floor"),
                lambda g, x, y, i, j: g.emit("FloorDivide", a=x, b=y),
            ),
            ("noop, contiguous", lambda x, y, i, j: x.clone(), lambda g, x, y, i, j: with_noop(g, x)),
        ],
    )


@network
def mlx_reductions():
    """What is reduced over one dimension, several or all."""
    cases = [(noise(3, 4, 5), torch.randint(-3, 4, (3, 4))) for _ in range(2)]

    def of_small(g, i):
        return g.emit("AsType", x=i, scalar_type=1)

    def median(x):
        ordered = x.sort(-1).values
        return (ordered[..., (x.shape[-1] - 1) // 2] + ordered[..., x.shape[-1] // 2]) / 2

    return by_hand(
        cases,
        [
            ("std", lambda x, i: x.std((0, 2), correction=1), lambda g, x, i: g.emit("Std", x=x, axes=[0, -1], ddof=1)),
            ("std of all", lambda x, i: x.std(correction=0), lambda g, x, i: g.emit("Std", x=x, axes=[], ddof=0)),
            (
                "var of all",
                lambda x, i: x.var((0, 1, 2), correction=1, keepdim=True),
                lambda g, x, i: g.emit("Var", x=x, axes=[], ddof=1, keepdims=True),
            ),
            ("median", lambda x, i: median(x), lambda g, x, i: g.emit("Median", x=x, axes=[2])),
            (
                "median of two",
                lambda x, i: median(x.movedim(1, 2).flatten(0, 1).reshape(3, 5, 4).transpose(0, 1).flatten(1))[None, :, None].transpose(1, 2),
                lambda g, x, i: g.emit("Median", x=x, axes=[0, 1], keepdims=True),
            ),
            (
                "median of none",
                lambda x, i: torch.full((3, 4), float("nan")).mean(1),
                lambda g, x, i: g.emit("Median", x=g.constant(torch.full((3, 4), float("nan"))), axes=[1]),
            ),
            ("prod", lambda x, i: x.prod(0).prod(1), lambda g, x, i: g.emit("Prod", x=x, axes=[0, 2])),
            ("prod of all", lambda x, i: x.prod(), lambda g, x, i: g.emit("Prod", x=x, axes=[])),
            (
                "prod of small integers",
                lambda x, i: i.prod(1, dtype=torch.int32, keepdim=True),
                lambda g, x, i: g.emit("Prod", x=of_small(g, i), axes=[1], keepdims=True),
            ),
            (
                "sum of booleans",
                lambda x, i: (i > 0).sum((0, 1), dtype=torch.int32),
                lambda g, x, i: g.emit("Sum", x=g.emit("Greater", a=i, b=g.constant(torch.zeros(1, dtype=torch.int64))), axes=[]),
            ),
            ("max of all", lambda x, i: x.amax(), lambda g, x, i: g.emit("Max", x=x, axes=[])),
            ("any of all", lambda x, i: (i > 2).any(), lambda g, x, i: g.emit("Any", x=g.emit("Greater", a=i, b=g.constant(torch.full((1,), 2))), axes=[])),
            ("log sum exp of none", lambda x, i: x.clone(), lambda g, x, i: g.emit("LogSumExp", x=x, axes=[])),
            (
                "cumsum without itself",
                lambda x, i: x.cumsum(1) - x,
                lambda g, x, i: g.emit("Cumsum", x=x, axis=1, inclusive=False),
            ),
            (
                "cumsum backwards",
                lambda x, i: x.flip(-1).cumsum(-1).flip(-1),
                lambda g, x, i: g.emit("Cumsum", x=x, axis=-1, reverse=True),
            ),
            (
                "cumsum backwards without itself",
                lambda x, i: x.flip(0).cumsum(0).flip(0) - x,
                lambda g, x, i: g.emit("Cumsum", x=x, axis=0, reverse=True, inclusive=False),
            ),
        ],
    )


def updated(x, part, at):
    """A copy with another part."""
    x = x.clone()
    x[at] = part
    return x


@network
def mlx_places():
    """Elements by their places, and in other places."""
    cases = [
        (noise(4, 5, 6), torch.tensor([[0, 3], [2, -1]]), torch.randint(0, 4, (4, 5, 6)), torch.tensor(place))
        for place in (1, 3)
    ]
    rows = slice(None)
    left, right = noise(3, 2, 4), noise(5, 4, 3)
    experts = torch.tensor([[1, 4], [0, 2]])

    def item(g, n):
        return g.emit("ItemInt", x=n)

    def places(g, n):
        start = item(g, n)
        stop = g.emit("AddInt", a=start, b=2)
        return start, stop

    def with_step(g, x, n):
        return g.emit("SliceUpdate", dst=x, update=g.constant(torch.ones(4, 2, 6)), axis=1, start=-4, stop=9, step=3)

    return by_hand(
        cases,
        [
            (
                "gather of two",
                lambda x, i, j, n: x[i, rows, i][:, :, None, :, None],
                lambda g, x, i, j, n: g.emit("Gather", x=x, indices=[i, i], axes=[0, 2], slice_sizes=[1, 5, 1]),
            ),
            (
                "gather of one",
                lambda x, i, j, n: x[rows, i].permute(1, 2, 0, 3)[:, :, :, None],
                lambda g, x, i, j, n: g.emit("Gather", x=x, indices=[i], axes=[1], slice_sizes=[4, 1, 6]),
            ),
            (
                "scatter add",
                lambda x, i, j, n: x.scatter_add(0, j, x.exp()),
                lambda g, x, i, j, n: g.emit("ScatterAdd", x=x, indices=j, updates=g.emit("Exp", x=x), axis=0),
            ),
            (
                "slice update",
                lambda x, i, j, n: updated(x, 2.0, (rows, slice(1, 4))),
                lambda g, x, i, j, n: g.emit("SliceUpdate", dst=x, update=g.constant(torch.full((1, 1, 1), 2.0)), axis=-2, start=1, stop=-1),
            ),
            (
                "slice update with a step",
                lambda x, i, j, n: updated(x, 1.0, (rows, slice(1, 5, 3))),
                lambda g, x, i, j, n: with_step(g, x, n),
            ),
            (
                "slice update at a place",
                lambda x, i, j, n: updated(x, x[:2].cos(), slice(int(n) - 1, int(n) + 1)),
                lambda g, x, i, j, n: g.emit(
                    "SliceUpdate",
                    dst=x,
                    update=g.emit("Cos", x=g.emit("Slice", x=x, axis=0, start=0, stop=2)),
                    axis=0,
                    start=g.emit("SubtractInt", a=item(g, n), b=1),
                    stop=g.emit("AddInt", a=item(g, n), b=1),
                ),
            ),
            (
                "slice at a place",
                lambda x, i, j, n: x[:, int(n) : int(n) + 2],
                lambda g, x, i, j, n: (lambda at: g.emit("Slice", x=x, axis=1, start=at[0], stop=at[1]))(places(g, n)),
            ),
            (
                "slice up to a place",
                lambda x, i, j, n: x[:, : int(n)].sum(1),
                lambda g, x, i, j, n: g.emit("Sum", x=g.emit("Slice", x=x, axis=1, start=0, stop=item(g, n)), axes=[1]),
            ),
            ("take at a place", lambda x, i, j, n: x[:, int(n)], lambda g, x, i, j, n: g.emit("Take", x=x, index=item(g, n), axis=1)),
            (
                "arange from a place",
                lambda x, i, j, n: torch.arange(int(n), int(n) + 2),
                lambda g, x, i, j, n: (lambda at: g.emit("ARange", start=at[0], stop=at[1], step=1, scalar_type=4))(places(g, n)),
            ),
            (
                "arange between places",
                lambda x, i, j, n: torch.arange(9, int(n), -3, dtype=torch.float32).sum(),
                lambda g, x, i, j, n: g.emit("Sum", x=g.emit("ARange", start=9, stop=item(g, n), step=-3, scalar_type=FLOAT32), axes=[]),
            ),
            (
                "numbers of places",
                lambda x, i, j, n: torch.full((2,), float((((int(n) - 6) * 3) // 4) * 10 + (int(n) - 7) % 4)),
                lambda g, x, i, j, n: g.emit(
                    "Full",
                    shape=[2],
                    scalar_type=FLOAT32,
                    v=g.emit(
                        "AddInt",
                        a=g.emit(
                            "MultiplyInt",
                            a=g.emit("FloorDivideInt", a=g.emit("MultiplyInt", a=g.emit("SubtractInt", a=item(g, n), b=6), b=3), b=4),
                            b=10,
                        ),
                        b=g.emit("ModInt", a=g.emit("SubtractInt", a=item(g, n), b=7), b=4),
                    ),
                ),
            ),
            (
                "numbers of sizes",
                lambda x, i, j, n: torch.full((2, 2), 3.0),
                lambda g, x, i, j, n: g.emit(
                    "Full",
                    shape=[g.emit("FloorDivideInt", a=g.emit("SymSize", a=x, dim=1), b=2), g.emit("ModInt", a=g.emit("SymSize", a=x, dim=-1), b=4)],
                    scalar_type=FLOAT32,
                    v=3.0,
                ),
            ),
            ("tri", lambda x, i, j, n: torch.ones(3, 5, dtype=torch.int32).tril(1), lambda g, x, i, j, n: g.emit("Tri", n=3, m=5, k=1, scalar_type=INT32)),
            ("tril", lambda x, i, j, n: x.tril(-1), lambda g, x, i, j, n: g.emit("Tril", x=x, k=-1)),
            ("triu", lambda x, i, j, n: x.triu(2), lambda g, x, i, j, n: g.emit("Triu", x=x, k=2)),
            ("roll", lambda x, i, j, n: x.roll((2, -1), (0, 2)), lambda g, x, i, j, n: g.emit("Roll", x=x, shift=[2, -1], axes=[0, 2])),
            (
                "pad by the edge",
                lambda x, i, j, n: F.pad(x[None], (2, 0, 0, 1, 1, 3), mode="replicate")[0],
                lambda g, x, i, j, n: g.emit("Pad", x=x, pad_width=[1, 3, 0, 1, 2, 0], mode="edge"),
            ),
            (
                "gather mm",
                lambda x, i, j, n: left[torch.tensor([2, 0])] @ right[experts],
                lambda g, x, i, j, n: g.emit(
                    "GatherMm",
                    a=g.constant(left),
                    b=g.constant(right),
                    lhs_indices=g.constant(torch.tensor([2, 0], dtype=torch.int32)),
                    rhs_indices=g.constant(experts.int()),
                ),
            ),
            (
                "gather mm of all",
                lambda x, i, j, n: left @ right[torch.tensor([4, 0, 4])],
                lambda g, x, i, j, n: g.emit("GatherMm", a=g.constant(left), b=g.constant(right), rhs_indices=g.constant(torch.tensor([4, 0, 4], dtype=torch.int32))),
            ),
        ],
    )


def channels_last(x):
    """As MLX has images and kernels."""
    return x.movedim(1, -1).contiguous()


def of_transposed(kernel, groups):
    """A kernel `[in, out / groups, ..]` as MLX stores it: `[out, .., in / groups]`."""
    split = kernel.unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1)
    return channels_last(split)


@network
def mlx_convolutions():
    """Convolutions over three dimensions, backwards and in groups."""
    solid, flat, line = noise(1, 4, 5, 4, 3), noise(2, 4, 5, 4), noise(2, 4, 6)
    kernels = {
        "solid": noise(6, 4, 3, 2, 2),
        "solid back": noise(4, 3, 3, 2, 2),
        "flat back": noise(4, 3, 3, 2),
        "line back": noise(4, 2, 4),
    }

    return by_hand(
        [tuple(channels_last(x) for x in (solid, flat, line))],
        [
            (
                "3-d",
                lambda x, y, z: channels_last(F.conv3d(x.movedim(-1, 1), kernels["solid"], None, (2, 1, 1), (1, 0, 1), (1, 2, 1))),
                lambda g, x, y, z: g.emit(
                    "Conv3D", x=x, w=g.constant(channels_last(kernels["solid"])), stride_d=2,
                    padding_d=1, padding_w=1, dilation_h=2,
                ),
            ),
            (
                "3-d back",
                lambda x, y, z: channels_last(F.conv_transpose3d(x.movedim(-1, 1), kernels["solid back"], None, 2, (1, 0, 0), (1, 0, 1))),
                lambda g, x, y, z: g.emit(
                    "ConvTranspose3D", x=x, w=g.constant(of_transposed(kernels["solid back"], 1)), stride_d=2, stride_h=2, stride_w=2,
                    padding_d=1, output_padding_d=1, output_padding_w=1,
                ),
            ),
            (
                "2-d back in groups",
                lambda x, y, z: channels_last(F.conv_transpose2d(y.movedim(-1, 1), kernels["flat back"], None, (2, 1), 1, (1, 0), 2)),
                lambda g, x, y, z: g.emit(
                    "ConvTranspose2D", x=y, w=g.constant(of_transposed(kernels["flat back"], 2)), stride_h=2, padding_h=1, padding_w=1,
                    output_padding_h=1, groups=2,
                ),
            ),
            (
                "1-d back in groups",
                lambda x, y, z: channels_last(F.conv_transpose1d(z.movedim(-1, 1), kernels["line back"], None, 2, 1, 0, 4)),
                lambda g, x, y, z: g.emit("ConvTranspose1D", x=z, w=g.constant(of_transposed(kernels["line back"], 4)), stride=2, padding=1, groups=4),
            ),
        ],
    )


def turned(x, size, first, neighbours=False, base=500000.0, scale=1.0, freqs=None):
    """Rotary positions: rows `[batch, .., place, size]` from a first place on, one for all or each of the batch."""
    half = size // 2
    freqs = base ** (-torch.arange(half, dtype=torch.float64) / half) if freqs is None else 1 / freqs.double()
    first = first.double().reshape(-1).expand(x.shape[0])
    places = (first[:, None] + torch.arange(x.shape[-2])) * scale
    angles = (places[..., None] * freqs).reshape(x.shape[0], *[1] * (x.dim() - 3), x.shape[-2], half)
    cos, sin = angles.cos().float(), angles.sin().float()
    a, b = (x[..., 0:size:2], x[..., 1:size:2]) if neighbours else (x[..., :half], x[..., half:size])
    pairs = (a * cos - b * sin, a * sin + b * cos)
    both = torch.stack(pairs, -1).flatten(-2) if neighbours else torch.cat(pairs, -1)
    return torch.cat((both, x[..., size:]), -1)


@network
def mlx_rope():
    """Rotary positions in every form."""
    cases = [(noise(2, 3, 4, 8), torch.tensor(place), torch.tensor([place, 9])) for place in (0, 5, 70)]
    freqs = torch.tensor([1.0, 3.5, 20.0])

    def rope(x, **fields):
        return lambda g, *inputs: g.emit("Rope", x=x(g, *inputs), **{k: v(g, *inputs) if callable(v) else v for k, v in fields.items()})

    def whole(g, x, n, m):
        return x

    def place(g, x, n, m):
        return g.emit("ItemInt", x=n)

    return by_hand(
        cases,
        [
            ("halves", lambda x, n, m: turned(x, 8, n), rope(whole, dims=8, offset=place)),
            ("neighbours", lambda x, n, m: turned(x, 8, n, True, 100.0), rope(whole, dims=8, offset=place, traditional=True, base=100.0)),
            ("a part", lambda x, n, m: turned(x, 6, n, scale=0.25), rope(whole, dims=6, offset=place, scale=0.25)),
            ("a part of neighbours", lambda x, n, m: turned(x, 6, n, True), rope(whole, dims=6, offset=place, traditional=True)),
            (
                "frequencies",
                lambda x, n, m: turned(x, 6, n, freqs=freqs),
                rope(whole, dims=6, offset=place, freqs=lambda g, *rest: g.constant(freqs)),
            ),
            ("a tensor", lambda x, n, m: turned(x, 8, n), rope(whole, dims=8, offset=lambda g, x, n, m: n)),
            ("a place each", lambda x, n, m: turned(x, 8, m, True), rope(whole, dims=8, offset=lambda g, x, n, m: m, traditional=True)),
            (
                "three dimensions",
                lambda x, n, m: turned(x[:, 0], 8, m, base=10.0),
                rope(lambda g, x, n, m: g.emit("Take", x=x, index=0, axis=1), dims=8, offset=lambda g, x, n, m: m, base=10.0),
            ),
        ],
    )


class Cached(nn.Module):
    """Attention of a decoder as language models for MLX have it: positions, caches, keys so far."""

    def __init__(self, ring):
        super().__init__()
        self.register_buffer("keys", torch.zeros(1, 2, 8, 4))
        self.register_buffer("values", torch.zeros(1, 2, 8, 4))
        self.register_buffer("ring", torch.zeros(1, 2, ring, 4))

    def forward(self, q, k, v, place):
        first, count = int(place), k.shape[2]
        self.keys[:, :, first : first + count] = turned(k, 4, place)
        self.values[:, :, first : first + count] = v
        for at in range(count):
            self.ring[:, :, (first + at) % self.ring.shape[2]] = v[:, :, at]
        keys, values = (x[:, :, : first + count].repeat_interleave(2, 1) for x in (self.keys, self.values))
        seen = torch.ones(count, first + count, dtype=torch.bool).tril(first)
        out = F.scaled_dot_product_attention(turned(q, 4, place), keys, values, seen, scale=0.5)
        square = F.scaled_dot_product_attention(q, *(x.repeat_interleave(2, 1) for x in (k, v)), is_causal=True, scale=0.5)
        return {"cache": out, "square": square, "ring": self.ring.clone()}


def cached(g, q, k, v, place):
    """The same, as the exporter for language models writes it."""
    keys, values = (g.state(torch.zeros(1, 2, 8, 4), name) for name in ("keys", "values"))
    ring = g.state(torch.zeros(1, 2, 3, 4), "ring")
    first = g.emit("ItemInt", x=place)
    stop = g.emit("AddInt", a=first, b=g.emit("SymSize", a=k, dim=2))
    turn = {"dims": 4, "offset": first}
    g.emit("SliceUpdate", dst=keys, update=g.emit("Rope", x=k, **turn), out=keys, axis=2, start=first, stop=stop)
    g.emit("SliceUpdate", dst=values, update=v, out=values, axis=2, start=first, stop=stop)
    so_far = [g.emit("Slice", x=x, axis=2, start=0, stop=stop) for x in (keys, values)]
    out = g.emit("Sdpa", q=g.emit("Rope", x=q, **turn), k=so_far[0], v=so_far[1], scale=0.5, causal=True)
    square = g.emit("Sdpa", q=q, k=k, v=v, scale=0.5, causal=True)
    # What does not fit at the end of the ring begins it anew.
    at = g.emit("ModInt", a=first, b=3)
    head = g.emit("Slice", x=v, axis=2, start=0, stop=g.emit("SubtractInt", a=3, b=at))
    fits = g.emit("SymSize", a=head, dim=2)
    count = g.emit("SymSize", a=v, dim=2)
    tail = g.emit("Slice", x=v, axis=2, start=fits, stop=count)
    g.emit("SliceUpdate", dst=ring, update=head, out=ring, axis=2, start=at, stop=g.emit("AddInt", a=at, b=fits))
    rest = g.emit("SubtractInt", a=count, b=fits)
    g.emit("SliceUpdate", dst=ring, update=tail, out=ring, axis=2, start=0, stop=rest)
    return out, square, ring


@network
def mlx_cache():
    places = (0, 2, 4, 6)
    cases = [(noise(1, 4, 2, 4), noise(1, 2, 2, 4), noise(1, 2, 2, 4), torch.tensor([place])) for place in places]
    method = Method(Cached(3), cases)
    return Network({"forward": method}, variants=("mlx_fp32",), build=cached, sequence=True)


def packed(codes, bits):
    """Codes `[.., n]` as words, the lowest bits first, across words."""
    flat = codes.reshape(-1, codes.shape[-1])
    stream = (flat[..., None] >> torch.arange(bits)) & 1
    stream = stream.reshape(flat.shape[0], -1, 32)
    words = (stream.long() << torch.arange(32)).sum(-1)
    return words.to(torch.uint32).reshape(*codes.shape[:-1], -1)


def by_groups(numbers, scales, group):
    """Numbers times the scale of their group."""
    return (numbers.unflatten(-1, (-1, group)) * scales[..., None]).flatten(-2)


FOURS = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
FOURS = torch.cat((FOURS, -FOURS))


def eights(codes):
    """Floats of eight bits, E4M3."""
    return codes.to(torch.uint8).view(torch.float8_e4m3fn).float()


@network
def mlx_words():
    """Weights in words, by every number of bits and in every mode."""
    x = noise(2, 64)
    outputs = []
    for bits in (1, 2, 3, 4, 5, 6, 8):
        codes = torch.randint(0, 2**bits, (3, 64))
        scales, biases = noise(3, 2), noise(3, 2)
        weights = by_groups(codes.float(), scales, 32) + biases.repeat_interleave(32, -1)

        def words(g, codes=codes, scales=scales, biases=biases, bits=bits):
            parts = {"w": packed(codes, bits), "scales": scales, "biases": biases}
            stored = {name: g.constant(part) for name, part in parts.items()}
            return {**stored, "group_size": 32, "bits": bits, "mode": "affine"}

        outputs.append((f"{bits} bits", lambda x, w=weights: w.clone(), lambda g, x, words=words: g.emit("Dequantize", **words(g))))
        outputs.append((f"{bits} bits, product", lambda x, w=weights: x @ w.T, lambda g, x, words=words: g.emit("QuantizedMatmul", x=x, **words(g))))
    for mode, group, bits in (("mxfp4", 32, 4), ("nvfp4", 16, 4), ("mxfp8", 32, 8)):
        codes = torch.randint(0, 2**bits, (3, 64))
        codes[codes % 128 == 127] = 3
        scales = torch.randint(118, 130, (3, 64 // group)) if mode != "nvfp4" else torch.randint(20, 80, (3, 4))
        factors = eights(scales) if mode == "nvfp4" else (scales.double() - 127).exp2().float()
        weights = by_groups(eights(codes) if bits == 8 else FOURS[codes], factors, group)

        def words(g, codes=codes, scales=scales, bits=bits, group=group, mode=mode):
            parts = {"w": packed(codes, bits), "scales": scales.to(torch.uint8)}
            stored = {name: g.constant(part) for name, part in parts.items()}
            return {**stored, "group_size": group, "bits": bits, "mode": mode}

        outputs.append((mode, lambda x, w=weights: w.clone(), lambda g, x, words=words: g.emit("Dequantize", **words(g), dtype=FLOAT32)))
        outputs.append((f"{mode}, product", lambda x, w=weights: x @ w.T, lambda g, x, words=words: g.emit("QuantizedMatmul", x=x, **words(g))))
        if mode == "nvfp4":
            outputs.append(
                (
                    "nvfp4 with a scale of all",
                    lambda x, w=weights: w * (3.5 / 2688),
                    lambda g, x, words=words: g.emit("Dequantize", **words(g), global_scale=g.constant(torch.tensor(3.5)), dtype=FLOAT32),
                )
            )
    codes, scales, biases = torch.randint(0, 16, (4, 3, 64)), noise(4, 3, 2), noise(4, 3, 2)
    weights = by_groups(codes.float(), scales, 32) + biases.repeat_interleave(32, -1)
    experts = torch.tensor([[3], [0]], dtype=torch.int32)

    def of_experts(g, x):
        stored = {"w": packed(codes, 4), "scales": scales, "biases": biases, "rhs_indices": experts}
        stored = {name: g.constant(part) for name, part in stored.items()}
        rows = g.emit("Reshape", x=x, shape=[2, 1, 1, 64])
        return g.emit("GatherQmm", x=rows, **stored, group_size=32, bits=4, mode="affine")

    outputs.append(("experts", lambda x: x[:, None, None] @ weights[experts.long()].transpose(-1, -2), of_experts))
    columns, scale, bias = torch.randint(0, 16, (64, 32)), noise(64, 1), noise(64, 1)
    across = by_groups(columns.float(), scale, 32) + bias

    def not_transposed(g, x):
        stored = {"w": packed(columns, 4), "scales": scale, "biases": bias}
        stored = {name: g.constant(part) for name, part in stored.items()}
        return g.emit("QuantizedMatmul", x=x, **stored, group_size=32, bits=4, mode="affine", transpose=False)

    outputs.append(("product across", lambda x: x @ across, not_transposed))
    return by_hand([(x,), (noise(2, 64),)], outputs)


class Language(nn.Module):
    """A decoder as the exporter for language models takes it, by MLX's own operators for PyTorch."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(12, 16)
        self.qkv, self.out, self.head = nn.Linear(16, 32, bias=False), nn.Linear(16, 16), nn.Linear(16, 12)
        self.norm = nn.RMSNorm(16)
        self.register_buffer("keys", torch.zeros(1, 2, 16, 4))
        self.register_buffer("values", torch.zeros(1, 2, 16, 4))

    def forward(self, ids, place):
        first = place[0].item()
        torch._check(first >= 0)
        torch._check(first + ids.shape[1] <= 16)
        x = self.words(ids)
        both = self.qkv(self.norm(x)).unflatten(-1, (8, 4)).transpose(1, 2)
        q, k, v = both[:, :4], both[:, 4:6], both[:, 6:]
        q, k = (torch.ops.mlx.rope(part, 4, first, False, 100.0, 1.0, None) for part in (q, k))
        torch.ops.mlx.kv_cache_update(self.keys, k, first)
        torch.ops.mlx.kv_cache_update(self.values, v, first)
        seen = torch.ops.mlx.custom_sdpa(q, self.keys, self.values, first, None, 0.0, True, 0.5)
        return self.head(x + self.out(seen.transpose(1, 2).flatten(2)))


@network
def mlx_language():
    import executorch.backends.mlx.custom_ops  # noqa: F401

    cases = [
        (torch.randint(0, 12, (1, count)), torch.tensor([place])) for count, place in ((5, 0), (1, 5), (3, 6), (1, 9))
    ]
    length = Dim("length", min=1, max=8)
    return forward(Language(), *cases, dynamic=({1: length}, None), variants=("mlx_fp32",), sequence=True)
