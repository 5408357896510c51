"""Networks for the instructions of MLX that no exporter writes of ordinary networks: each is PyTorch's answer
beside the graph, instruction by instruction."""

import torch
from torch.nn import functional as F

from harness import Method, Ops
from payload_networks import Network, network, noise
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
    cases = [
        (noise(3, 4), noise(4), torch.randint(-9, 9, (3, 4)), torch.randint(1, 9, (4,)))
        for _ in range(2)
    ]
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
                lambda g, x, y, i, j: g.emit(
                    "Arccosh", x=g.emit("Add", a=g.emit("Square", x=x), b=g.constant(torch.ones(1)))
                ),
            ),
            (
                "arctanh",
                lambda x, y, i, j: x.sin().atanh(),
                lambda g, x, y, i, j: g.emit("Arctanh", x=g.emit("Sin", x=x)),
            ),
            (
                "log add exp",
                lambda x, y, i, j: torch.logaddexp(x, y),
                lambda g, x, y, i, j: g.emit("LogAddExp", a=x, b=y),
            ),
            (
                "log add exp of infinities",
                lambda x, y, i, j: torch.logaddexp(infinite, torch.zeros(4)),
                lambda g, x, y, i, j: g.emit(
                    "LogAddExp", a=g.constant(infinite), b=g.constant(torch.zeros(4))
                ),
            ),
            (
                "round to decimals",
                lambda x, y, i, j: torch.round(x, decimals=2),
                lambda g, x, y, i, j: g.emit("Round", x=x, decimals=2),
            ),
            (
                "round to tens",
                lambda x, y, i, j: torch.round(x * 50, decimals=-1),
                lambda g, x, y, i, j: g.emit(
                    "Round",
                    x=g.emit("Multiply", a=x, b=g.constant(torch.full((1,), 50.0))),
                    decimals=-1,
                ),
            ),
            (
                "round integers to tens",
                lambda x, y, i, j: ((i * 7).double() / 10).round().long() * 10,
                lambda g, x, y, i, j: g.emit(
                    "Round", x=g.emit("Multiply", a=i, b=g.constant(torch.tensor([7]))), decimals=-1
                ),
            ),
            (
                "bitwise or",
                lambda x, y, i, j: i | j,
                lambda g, x, y, i, j: g.emit("BitwiseOr", a=i, b=j),
            ),
            (
                "bitwise xor",
                lambda x, y, i, j: i ^ j,
                lambda g, x, y, i, j: g.emit("BitwiseXor", a=i, b=j),
            ),
            (
                "bitwise invert",
                lambda x, y, i, j: ~i,
                lambda g, x, y, i, j: g.emit("BitwiseInvert", x=i),
            ),
            (
                "floor divide",
                lambda x, y, i, j: torch.div(x, y, rounding_mode="floor"),
                lambda g, x, y, i, j: g.emit("FloorDivide", a=x, b=y),
            ),
            (
                "noop, contiguous",
                lambda x, y, i, j: x.clone(),
                lambda g, x, y, i, j: with_noop(g, x),
            ),
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
            (
                "std",
                lambda x, i: x.std((0, 2), correction=1),
                lambda g, x, i: g.emit("Std", x=x, axes=[0, -1], ddof=1),
            ),
            (
                "std of all",
                lambda x, i: x.std(correction=0),
                lambda g, x, i: g.emit("Std", x=x, axes=[], ddof=0),
            ),
            (
                "var of all",
                lambda x, i: x.var((0, 1, 2), correction=1, keepdim=True),
                lambda g, x, i: g.emit("Var", x=x, axes=[], ddof=1, keepdims=True),
            ),
            ("median", lambda x, i: median(x), lambda g, x, i: g.emit("Median", x=x, axes=[2])),
            (
                "median of two",
                lambda x, i: median(
                    x.movedim(1, 2).flatten(0, 1).reshape(3, 5, 4).transpose(0, 1).flatten(1)
                )[None, :, None].transpose(1, 2),
                lambda g, x, i: g.emit("Median", x=x, axes=[0, 1], keepdims=True),
            ),
            (
                "median of none",
                lambda x, i: torch.full((3, 4), float("nan")).mean(1),
                lambda g, x, i: g.emit(
                    "Median", x=g.constant(torch.full((3, 4), float("nan"))), axes=[1]
                ),
            ),
            (
                "prod",
                lambda x, i: x.prod(0).prod(1),
                lambda g, x, i: g.emit("Prod", x=x, axes=[0, 2]),
            ),
            ("prod of all", lambda x, i: x.prod(), lambda g, x, i: g.emit("Prod", x=x, axes=[])),
            (
                "prod of small integers",
                lambda x, i: i.prod(1, dtype=torch.int32, keepdim=True),
                lambda g, x, i: g.emit("Prod", x=of_small(g, i), axes=[1], keepdims=True),
            ),
            (
                "sum of booleans",
                lambda x, i: (i > 0).sum((0, 1), dtype=torch.int32),
                lambda g, x, i: g.emit(
                    "Sum",
                    x=g.emit("Greater", a=i, b=g.constant(torch.zeros(1, dtype=torch.int64))),
                    axes=[],
                ),
            ),
            ("max of all", lambda x, i: x.amax(), lambda g, x, i: g.emit("Max", x=x, axes=[])),
            (
                "any of all",
                lambda x, i: (i > 2).any(),
                lambda g, x, i: g.emit(
                    "Any", x=g.emit("Greater", a=i, b=g.constant(torch.full((1,), 2))), axes=[]
                ),
            ),
            (
                "log sum exp of none",
                lambda x, i: x.clone(),
                lambda g, x, i: g.emit("LogSumExp", x=x, axes=[]),
            ),
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
        (
            noise(4, 5, 6),
            torch.tensor([[0, 3], [2, -1]]),
            torch.randint(0, 4, (4, 5, 6)),
            torch.tensor(place),
        )
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
        return g.emit(
            "SliceUpdate",
            dst=x,
            update=g.constant(torch.ones(4, 2, 6)),
            axis=1,
            start=-4,
            stop=9,
            step=3,
        )

    return by_hand(
        cases,
        [
            (
                "gather of two",
                lambda x, i, j, n: x[i, rows, i][:, :, None, :, None],
                lambda g, x, i, j, n: g.emit(
                    "Gather", x=x, indices=[i, i], axes=[0, 2], slice_sizes=[1, 5, 1]
                ),
            ),
            (
                "gather of one",
                lambda x, i, j, n: x[rows, i].permute(1, 2, 0, 3)[:, :, :, None],
                lambda g, x, i, j, n: g.emit(
                    "Gather", x=x, indices=[i], axes=[1], slice_sizes=[4, 1, 6]
                ),
            ),
            (
                "scatter add",
                lambda x, i, j, n: x.scatter_add(0, j, x.exp()),
                lambda g, x, i, j, n: g.emit(
                    "ScatterAdd", x=x, indices=j, updates=g.emit("Exp", x=x), axis=0
                ),
            ),
            (
                "slice update",
                lambda x, i, j, n: updated(x, 2.0, (rows, slice(1, 4))),
                lambda g, x, i, j, n: g.emit(
                    "SliceUpdate",
                    dst=x,
                    update=g.constant(torch.full((1, 1, 1), 2.0)),
                    axis=-2,
                    start=1,
                    stop=-1,
                ),
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
                lambda g, x, i, j, n: (
                    lambda at: g.emit("Slice", x=x, axis=1, start=at[0], stop=at[1])
                )(places(g, n)),
            ),
            (
                "slice up to a place",
                lambda x, i, j, n: x[:, : int(n)].sum(1),
                lambda g, x, i, j, n: g.emit(
                    "Sum", x=g.emit("Slice", x=x, axis=1, start=0, stop=item(g, n)), axes=[1]
                ),
            ),
            (
                "take at a place",
                lambda x, i, j, n: x[:, int(n)],
                lambda g, x, i, j, n: g.emit("Take", x=x, index=item(g, n), axis=1),
            ),
            (
                "arange from a place",
                lambda x, i, j, n: torch.arange(int(n), int(n) + 2),
                lambda g, x, i, j, n: (
                    lambda at: g.emit("ARange", start=at[0], stop=at[1], step=1, scalar_type=4)
                )(places(g, n)),
            ),
            (
                "arange between places",
                lambda x, i, j, n: torch.arange(9, int(n), -3, dtype=torch.float32).sum(),
                lambda g, x, i, j, n: g.emit(
                    "Sum",
                    x=g.emit("ARange", start=9, stop=item(g, n), step=-3, scalar_type=FLOAT32),
                    axes=[],
                ),
            ),
            (
                "numbers of places",
                lambda x, i, j, n: torch.full(
                    (2,), float((((int(n) - 6) * 3) // 4) * 10 + (int(n) - 7) % 4)
                ),
                lambda g, x, i, j, n: g.emit(
                    "Full",
                    shape=[2],
                    scalar_type=FLOAT32,
                    v=g.emit(
                        "AddInt",
                        a=g.emit(
                            "MultiplyInt",
                            a=g.emit(
                                "FloorDivideInt",
                                a=g.emit(
                                    "MultiplyInt", a=g.emit("SubtractInt", a=item(g, n), b=6), b=3
                                ),
                                b=4,
                            ),
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
                    shape=[
                        g.emit("FloorDivideInt", a=g.emit("SymSize", a=x, dim=1), b=2),
                        g.emit("ModInt", a=g.emit("SymSize", a=x, dim=-1), b=4),
                    ],
                    scalar_type=FLOAT32,
                    v=3.0,
                ),
            ),
            (
                "tri",
                lambda x, i, j, n: torch.ones(3, 5, dtype=torch.int32).tril(1),
                lambda g, x, i, j, n: g.emit("Tri", n=3, m=5, k=1, scalar_type=INT32),
            ),
            (
                "tril",
                lambda x, i, j, n: x.tril(-1),
                lambda g, x, i, j, n: g.emit("Tril", x=x, k=-1),
            ),
            ("triu", lambda x, i, j, n: x.triu(2), lambda g, x, i, j, n: g.emit("Triu", x=x, k=2)),
            (
                "roll",
                lambda x, i, j, n: x.roll((2, -1), (0, 2)),
                lambda g, x, i, j, n: g.emit("Roll", x=x, shift=[2, -1], axes=[0, 2]),
            ),
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
                lambda g, x, i, j, n: g.emit(
                    "GatherMm",
                    a=g.constant(left),
                    b=g.constant(right),
                    rhs_indices=g.constant(torch.tensor([4, 0, 4], dtype=torch.int32)),
                ),
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
                lambda x, y, z: channels_last(
                    F.conv3d(
                        x.movedim(-1, 1), kernels["solid"], None, (2, 1, 1), (1, 0, 1), (1, 2, 1)
                    )
                ),
                lambda g, x, y, z: g.emit(
                    "Conv3D",
                    x=x,
                    w=g.constant(channels_last(kernels["solid"])),
                    stride_d=2,
                    padding_d=1,
                    padding_w=1,
                    dilation_h=2,
                ),
            ),
            (
                "3-d back",
                lambda x, y, z: channels_last(
                    F.conv_transpose3d(
                        x.movedim(-1, 1), kernels["solid back"], None, 2, (1, 0, 0), (1, 0, 1)
                    )
                ),
                lambda g, x, y, z: g.emit(
                    "ConvTranspose3D",
                    x=x,
                    w=g.constant(of_transposed(kernels["solid back"], 1)),
                    stride_d=2,
                    stride_h=2,
                    stride_w=2,
                    padding_d=1,
                    output_padding_d=1,
                    output_padding_w=1,
                ),
            ),
            (
                "2-d back in groups",
                lambda x, y, z: channels_last(
                    F.conv_transpose2d(
                        y.movedim(-1, 1), kernels["flat back"], None, (2, 1), 1, (1, 0), 2
                    )
                ),
                lambda g, x, y, z: g.emit(
                    "ConvTranspose2D",
                    x=y,
                    w=g.constant(of_transposed(kernels["flat back"], 2)),
                    stride_h=2,
                    padding_h=1,
                    padding_w=1,
                    output_padding_h=1,
                    groups=2,
                ),
            ),
            (
                "1-d back in groups",
                lambda x, y, z: channels_last(
                    F.conv_transpose1d(z.movedim(-1, 1), kernels["line back"], None, 2, 1, 0, 4)
                ),
                lambda g, x, y, z: g.emit(
                    "ConvTranspose1D",
                    x=z,
                    w=g.constant(of_transposed(kernels["line back"], 4)),
                    stride=2,
                    padding=1,
                    groups=4,
                ),
            ),
        ],
    )


@network
def mlx_refused():
    """What is no reading of a program: kernels of a GPU, chance, what a host keeps, and control flow."""
    method = Method(Ops({"copy": lambda x: x.clone()}), [(noise(2, 3),)])
    kinds = ("MetalKernel", "RandomBits", "UpdateAndAttend", "Scan", "If")

    def build(g, x):
        nothing = {"inputs": [x], "outputs": [g.place("temp")], "grid": [1, 1, 1]}
        g.emit("MetalKernel", name="none", source="", threadgroup=[1, 1, 1], **nothing)
        g.emit("RandomBits", shape=[2])
        g.emit("UpdateAndAttend", q=x, k=x, v=x, position=x, layer_id=0, scale=1.0)
        chains = {"originals": [x], "sliced": [x], "outputs": [g.place("temp")], "carry": [x]}
        g.emit("Scan", body_chain_idx=1, **chains)
        g.emit("If", cond=1, then_chain_idx=1, else_chain_idx=1)
        return [g.emit("Contiguous", x=x)]

    variants = ("mlx_fp32",)
    return Network({"forward": method}, variants=variants, build=build, refused=kinds)
