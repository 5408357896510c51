"""More networks for MLX: rotary positions, caches, decoders, and weights in words."""

import torch
from torch import nn
from torch.nn import functional as F

from harness import Method
from mlx_networks import FLOAT32, by_hand
from payload_networks import LanguageLayers, Network, forward, language, network, noise


def turned(x, size, first, neighbours=False, base=500000.0, scale=1.0, freqs=None):
    """Rotary positions: rows `[batch, .., place, size]` from a first place on, one for all or each of the batch."""
    half = size // 2
    freqs = (
        base ** (-torch.arange(half, dtype=torch.float64) / half)
        if freqs is None
        else 1 / freqs.double()
    )
    first = first.double().reshape(-1).expand(x.shape[0])
    places = (first[:, None] + torch.arange(x.shape[-2])) * scale
    angles = (places[..., None] * freqs).reshape(
        x.shape[0], *[1] * (x.dim() - 3), x.shape[-2], half
    )
    cos, sin = angles.cos().float(), angles.sin().float()
    a, b = (
        (x[..., 0:size:2], x[..., 1:size:2]) if neighbours else (x[..., :half], x[..., half:size])
    )
    pairs = (a * cos - b * sin, a * sin + b * cos)
    both = torch.stack(pairs, -1).flatten(-2) if neighbours else torch.cat(pairs, -1)
    return torch.cat((both, x[..., size:]), -1)


@network
def mlx_rope():
    """Rotary positions in every form."""
    cases = [
        (noise(2, 3, 4, 8), torch.tensor(place), torch.tensor([place, 9])) for place in (0, 5, 70)
    ]
    freqs = torch.tensor([1.0, 3.5, 20.0])

    def rope(x, **fields):
        return lambda g, *inputs: g.emit(
            "Rope",
            x=x(g, *inputs),
            **{k: v(g, *inputs) if callable(v) else v for k, v in fields.items()},
        )

    def whole(g, x, n, m):
        return x

    def place(g, x, n, m):
        return g.emit("ItemInt", x=n)

    return by_hand(
        cases,
        [
            ("halves", lambda x, n, m: turned(x, 8, n), rope(whole, dims=8, offset=place)),
            (
                "neighbours",
                lambda x, n, m: turned(x, 8, n, True, 100.0),
                rope(whole, dims=8, offset=place, traditional=True, base=100.0),
            ),
            (
                "a part",
                lambda x, n, m: turned(x, 6, n, scale=0.25),
                rope(whole, dims=6, offset=place, scale=0.25),
            ),
            (
                "a part of neighbours",
                lambda x, n, m: turned(x, 6, n, True),
                rope(whole, dims=6, offset=place, traditional=True),
            ),
            (
                "frequencies",
                lambda x, n, m: turned(x, 6, n, freqs=freqs),
                rope(whole, dims=6, offset=place, freqs=lambda g, *rest: g.constant(freqs)),
            ),
            (
                "a tensor",
                lambda x, n, m: turned(x, 8, n),
                rope(whole, dims=8, offset=lambda g, x, n, m: n),
            ),
            (
                "a place each",
                lambda x, n, m: turned(x, 8, m, True),
                rope(whole, dims=8, offset=lambda g, x, n, m: m, traditional=True),
            ),
            (
                "three dimensions",
                lambda x, n, m: turned(x[:, 0], 8, m, base=10.0),
                rope(
                    lambda g, x, n, m: g.emit("Take", x=x, index=0, axis=1),
                    dims=8,
                    offset=lambda g, x, n, m: m,
                    base=10.0,
                ),
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
        keys, values = (
            x[:, :, : first + count].repeat_interleave(2, 1) for x in (self.keys, self.values)
        )
        seen = torch.ones(count, first + count, dtype=torch.bool).tril(first)
        out = F.scaled_dot_product_attention(turned(q, 4, place), keys, values, seen, scale=0.5)
        square = F.scaled_dot_product_attention(
            q, *(x.repeat_interleave(2, 1) for x in (k, v)), is_causal=True, scale=0.5
        )
        return {"cache": out, "square": square, "ring": self.ring.clone()}


def cached(g, q, k, v, place):
    """The same, as the exporter for language models writes it."""
    keys, values = (g.state(torch.zeros(1, 2, 8, 4), name) for name in ("keys", "values"))
    ring = g.state(torch.zeros(1, 2, 3, 4), "ring")
    first = g.emit("ItemInt", x=place)
    stop = g.emit("AddInt", a=first, b=g.emit("SymSize", a=k, dim=2))
    turn = {"dims": 4, "offset": first}
    g.emit(
        "SliceUpdate",
        dst=keys,
        update=g.emit("Rope", x=k, **turn),
        out=keys,
        axis=2,
        start=first,
        stop=stop,
    )
    g.emit("SliceUpdate", dst=values, update=v, out=values, axis=2, start=first, stop=stop)
    so_far = [g.emit("Slice", x=x, axis=2, start=0, stop=stop) for x in (keys, values)]
    out = g.emit(
        "Sdpa", q=g.emit("Rope", x=q, **turn), k=so_far[0], v=so_far[1], scale=0.5, causal=True
    )
    square = g.emit("Sdpa", q=q, k=k, v=v, scale=0.5, causal=True)
    # What does not fit at the end of the ring begins it anew.
    at = g.emit("ModInt", a=first, b=3)
    head = g.emit("Slice", x=v, axis=2, start=0, stop=g.emit("SubtractInt", a=3, b=at))
    fits = g.emit("SymSize", a=head, dim=2)
    count = g.emit("SymSize", a=v, dim=2)
    tail = g.emit("Slice", x=v, axis=2, start=fits, stop=count)
    g.emit(
        "SliceUpdate",
        dst=ring,
        update=head,
        out=ring,
        axis=2,
        start=at,
        stop=g.emit("AddInt", a=at, b=fits),
    )
    rest = g.emit("SubtractInt", a=count, b=fits)
    g.emit("SliceUpdate", dst=ring, update=tail, out=ring, axis=2, start=0, stop=rest)
    return out, square, ring


@network
def mlx_cache():
    places = (0, 2, 4, 6)
    cases = [
        (noise(1, 4, 2, 4), noise(1, 2, 2, 4), noise(1, 2, 2, 4), torch.tensor([place]))
        for place in places
    ]
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

        outputs.append(
            (
                f"{bits} bits",
                lambda x, w=weights: w.clone(),
                lambda g, x, words=words: g.emit("Dequantize", **words(g)),
            )
        )
        outputs.append(
            (
                f"{bits} bits, product",
                lambda x, w=weights: x @ w.T,
                lambda g, x, words=words: g.emit("QuantizedMatmul", x=x, **words(g)),
            )
        )
    for mode, group, bits in (("mxfp4", 32, 4), ("nvfp4", 16, 4), ("mxfp8", 32, 8)):
        codes = torch.randint(0, 2**bits, (3, 64))
        codes[codes % 128 == 127] = 3
        scales = (
            torch.randint(118, 130, (3, 64 // group))
            if mode != "nvfp4"
            else torch.randint(20, 80, (3, 4))
        )
        factors = eights(scales) if mode == "nvfp4" else (scales.double() - 127).exp2().float()
        weights = by_groups(eights(codes) if bits == 8 else FOURS[codes], factors, group)

        def words(g, codes=codes, scales=scales, bits=bits, group=group, mode=mode):
            parts = {"w": packed(codes, bits), "scales": scales.to(torch.uint8)}
            stored = {name: g.constant(part) for name, part in parts.items()}
            return {**stored, "group_size": group, "bits": bits, "mode": mode}

        outputs.append(
            (
                mode,
                lambda x, w=weights: w.clone(),
                lambda g, x, words=words: g.emit("Dequantize", **words(g), dtype=FLOAT32),
            )
        )
        outputs.append(
            (
                f"{mode}, product",
                lambda x, w=weights: x @ w.T,
                lambda g, x, words=words: g.emit("QuantizedMatmul", x=x, **words(g)),
            )
        )
        if mode == "nvfp4":
            outputs.append(
                (
                    "nvfp4 with a scale of all",
                    lambda x, w=weights: w * (3.5 / 2688),
                    lambda g, x, words=words: g.emit(
                        "Dequantize",
                        **words(g),
                        global_scale=g.constant(torch.tensor(3.5)),
                        dtype=FLOAT32,
                    ),
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

    outputs.append(
        (
            "experts",
            lambda x: x[:, None, None] @ weights[experts.long()].transpose(-1, -2),
            of_experts,
        )
    )
    columns, scale, bias = torch.randint(0, 16, (64, 32)), noise(64, 1), noise(64, 1)
    across = by_groups(columns.float(), scale, 32) + bias

    def not_transposed(g, x):
        stored = {"w": packed(columns, 4), "scales": scale, "biases": bias}
        stored = {name: g.constant(part) for name, part in stored.items()}
        return g.emit(
            "QuantizedMatmul", x=x, **stored, group_size=32, bits=4, mode="affine", transpose=False
        )

    outputs.append(("product across", lambda x: x @ across, not_transposed))
    return by_hand([(x,), (noise(2, 64),)], outputs)


class Language(LanguageLayers):
    """A decoder as the exporter for language models takes it, by MLX's own operators for PyTorch."""

    def __init__(self):
        super().__init__()
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
    import executorch.backends.mlx.custom_ops

    return language(Language, "mlx_fp32")
