"""Networks for the operators of Vulkan that the exporter does not write of ordinary networks: each is PyTorch's
answer beside the graph, call by call; and two that it does write."""

import torch
from torch import nn
from torch.nn import functional as F

from harness import Method, Ops, flattened
from payload_networks import LanguageLayers, Network, forward, language, network, noise, settled
from quantized import PER_CHANNEL


def by_hand(cases, outputs):
    """A network of labelled outputs: for each what PyTorch makes of the inputs, the operator, and its arguments
    beside the inputs."""
    method = Method(Ops({label: reference for label, reference, *_ in outputs}), cases)

    def build(graph, *inputs):
        places = []
        for _, reference, name, arguments in outputs:
            like = reference(*cases[0])
            places.append(graph.call(name, *arguments(*inputs), like=like))
        return flattened(places)

    return Network({"forward": method}, variants=("vulkan_fp32",), build=build)


@network
def vulkan_elements():
    """Activations, pools, grids, and tensors like others."""
    lines, deep, wide = noise(6, 4, 1), noise(4, 1, 3), noise(6)
    plain = dict(
        point=lambda x, y: F.conv1d(y, lines, wide),
        deep=lambda x, y: F.conv1d(y, deep, None, 2, 1, 1, 4).clamp(-0.5, 0.75),
    )
    grid = lambda x, y: torch.stack(
        [
            (torch.arange(6.0) + 0.5).repeat(5) * 8,
            (torch.arange(5.0) + 0.5).repeat_interleave(6) * 8,
        ],
        -1,
    )
    return by_hand(
        [(noise(1, 4, 5, 6) * 4, noise(2, 4, 7)) for _ in range(2)],
        [
            ("relu6", lambda x, y: F.relu6(x), "aten.relu6.default", lambda x, y: [x]),
            (
                "hardshrink",
                lambda x, y: F.hardshrink(x, 0.75),
                "aten.hardshrink.default",
                lambda x, y: [x, 0.75],
            ),
            (
                "ones like",
                lambda x, y: torch.ones_like(y),
                "aten.ones_like.default",
                lambda x, y: [y, *[None] * 5],
            ),
            (
                "zeros like",
                lambda x, y: torch.zeros_like(y),
                "aten.zeros_like.default",
                lambda x, y: [y, *[None] * 5],
            ),
            (
                "max pool",
                lambda x, y: F.max_pool2d(x, (3, 2), (2, 1), (1, 0), 1, True),
                "aten.max_pool2d.default",
                lambda x, y: [x, [3, 2], [2, 1], [1, 0], [1, 1], True],
            ),
            (
                "permute",
                lambda x, y: x.permute(0, 2, 3, 1),
                "aten.permute.default",
                lambda x, y: [x, [0, 2, 3, 1]],
            ),
            ("select", lambda x, y: x[:, -1], "aten.select.int", lambda x, y: [x, 1, -1]),
            ("slice", lambda x, y: x[:, 1:4:2], "aten.slice.Tensor", lambda x, y: [x, 1, 1, 4, 2]),
            ("grid priors", grid, "et_vk.grid_priors.default", lambda x, y: [x, 8, 0.5]),
            (
                "1-d point by point",
                plain["point"],
                "et_vk.conv1d_pw.default",
                lambda x, y: [y, lines, wide, [1], [0], [1], 1, None, None],
            ),
            (
                "1-d by channel",
                plain["deep"],
                "et_vk.conv1d_dw.default",
                lambda x, y: [y, deep, None, [2], [1], [1], 4, -0.5, 0.75],
            ),
        ],
    )


def bytes_of(codes, high_first):
    """Numbers of four bits as bytes, 8 more than they are."""
    even, odd = codes[:, ::2] + 8, codes[:, 1::2] + 8
    return ((even << 4 | odd) if high_first else (odd << 4 | even)).to(torch.uint8)


def stepped(x, scale, zero):
    """What was rounded to eight bits, as the numbers it stands for."""
    return (x.float() - zero) * scale


def rounded(x, scale, zero):
    """Numbers in eight bits."""
    return (x / scale).round().add(zero).clamp(-128, 127).to(torch.int8)


@network
def vulkan_weights():
    """Layers and tables whose weights are quantised."""
    fours, eights = torch.randint(-8, 8, (6, 32)), torch.randint(-128, 128, (6, 32))
    rows, groups, bias = noise(6), noise(6, 2), noise(6)
    layer = rows[:, None] * eights
    table = (fours.unflatten(1, (2, 16)) * groups[..., None]).flatten(1)
    eights, sums = eights.to(torch.int8), eights.sum(1).int()
    return by_hand(
        [
            (
                noise(2, 3, 32),
                torch.randint(0, 6, (2, 4)),
                torch.randint(-128, 128, (2, 3, 32), dtype=torch.int8),
            )
            for _ in range(2)
        ],
        [
            (
                "eight bits",
                lambda x, i, c: x @ layer.T,
                "aten._weight_int8pack_mm.default",
                lambda x, i, c: [x, eights, rows],
            ),
            (
                "eight bits of what is rounded",
                lambda x, i, c: F.linear(stepped(rounded(x, 0.0137, 3), 0.0137, 3), layer, bias),
                "et_vk.linear_q8ta_q8csw.default",
                lambda x, i, c: [x, 0.0137, 3, eights, sums, rows, bias],
            ),
            (
                "eight bits of eight bits",
                lambda x, i, c: F.linear(stepped(c, 0.0137, 3), layer),
                "et_vk.linear_q8ta_q8csw.default",
                lambda x, i, c: [c, 0.0137, 3, eights, sums, rows, None],
            ),
            (
                "four bits",
                lambda x, i, c: x @ (rows[:, None] * fours).T,
                "et_vk.linear_qcs4w.default",
                lambda x, i, c: [x, bytes_of(fours, True), rows],
            ),
            (
                "table",
                lambda x, i, c: F.embedding(i, table),
                "et_vk.embedding_q4gsw.default",
                lambda x, i, c: [bytes_of(fours, True), groups, 16, i, False],
            ),
            (
                "table as a layer",
                lambda x, i, c: F.embedding(i, table),
                "et_vk.embedding_q4gsw.default",
                lambda x, i, c: [bytes_of(fours, False), groups, 16, i, True],
            ),
            (
                "table of one scale",
                lambda x, i, c: F.embedding(i, fours * 0.25),
                "et_vk.embedding_q4gsw.default",
                lambda x, i, c: [bytes_of(fours, True), torch.tensor([0.25]), 32, i, False],
            ),
        ],
    )


@network
def vulkan_eights():
    """What takes and gives eight bits."""
    codes = torch.randint(-127, 128, (8, 8 * 3 * 2), dtype=torch.int8)
    grouped = torch.randint(-127, 128, (8, 4 * 2 * 2), dtype=torch.int8)
    scales, bias = torch.rand(8) / 100, noise(8)

    def kernel(rows, scales, groups, size):
        """Rows of height, width, channels as `[in, out / groups, height, width]`."""
        out = rows.float() * scales[:, None]
        out = out.reshape(groups, 8 // groups, *size, 8 // groups)
        return out.permute(0, 4, 1, 2, 3).reshape(8, 8 // groups, *size)

    def back(x, rows, scales, bias, size, stride, padding, more, groups):
        weights = kernel(rows, scales, groups, size)
        return F.conv_transpose2d(stepped(x, 0.05, 3), weights, bias, stride, padding, more, groups)

    again = torch.cat((scales[:4], scales[:4]))
    return by_hand(
        [(torch.randint(-128, 128, (1, 8, 4, 5), dtype=torch.int8),) for _ in range(3)],
        [
            (
                "backwards",
                lambda x: rounded(
                    back(x, codes, scales, bias, (3, 2), (2, 1), (1, 0), (1, 0), 1).relu(),
                    0.05,
                    -20,
                ),
                "et_vk.q8ta_conv2d_transposed.default",
                lambda x: [
                    x,
                    0.05,
                    3,
                    codes,
                    codes.sum(1).int(),
                    scales,
                    0.05,
                    -20,
                    bias,
                    [3, 2],
                    [2, 1],
                    [1, 0],
                    [1, 0],
                    [1, 1],
                    1,
                    "relu",
                ],
            ),
            (
                "backwards in groups",
                lambda x: rounded(
                    back(x, grouped, again, None, (2, 2), (2, 2), (0, 0), (0, 0), 2), 0.05, 5
                ),
                "et_vk.q8ta_conv2d_transposed.default",
                lambda x: [
                    x,
                    0.05,
                    3,
                    grouped,
                    grouped.sum(1).int(),
                    scales[:4],
                    0.05,
                    5,
                    None,
                    [2, 2],
                    [2, 2],
                    [0, 0],
                    [0, 0],
                    [1, 1],
                    2,
                    "none",
                ],
            ),
            (
                "relu",
                lambda x: rounded(stepped(x, 0.05, 3).relu(), 0.017, -100),
                "et_vk.q8ta_relu.default",
                lambda x: [x, 0.05, 3, 0.017, -100],
            ),
            (
                "pixel shuffle",
                lambda x: rounded(F.pixel_shuffle(stepped(x, 0.05, 3), 2), 0.0625, 7),
                "et_vk.q8ta_pixel_shuffle.default",
                lambda x: [x, 0.05, 3, 16.0, 7, 2],
            ),
        ],
    )


def neighbours(x, cos, sin):
    """Rows whose neighbours are pairs."""
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


def halves(x, cos, sin):
    """Rows whose halves are pairs, as far as there are angles."""
    size = cos.shape[-1]
    turned, rest = x[..., :size], x[..., size:]
    a, b = turned.chunk(2, -1)
    return torch.cat((turned * cos + torch.cat((-b, a), -1) * sin, rest), -1)


@network
def vulkan_attention():
    """Attention and rotary positions."""
    cos, sin = torch.rand(3, 4), torch.rand(3, 4)
    by_head = torch.rand(3, 2, 4), torch.rand(3, 2, 4)
    table = torch.rand(9, 6), torch.rand(9, 6)
    cis, mask = torch.rand(1, 6, 4, 2), noise(1, 1, 3, 3)
    heads = lambda x: x.transpose(1, 2)
    one = lambda x: x[:, None]

    def attend(q, k, v, mask=None, scale=None):
        return F.scaled_dot_product_attention(q, k, v, mask, scale=scale)

    def outputs(x):
        return x, x[:, :, :1].clone()

    reference = {
        "sdpa": lambda x: attend(heads(x), heads(x), heads(x).exp()),
        "sdpa with a mask": lambda x: attend(heads(x), heads(x), heads(x), mask, 0.25),
        "neighbours": lambda x: tuple(neighbours(y, one(cos), one(sin)) for y in outputs(x)),
        "neighbours by head": lambda x: (neighbours(x, *by_head), neighbours(x.exp(), *by_head)),
        "halves": lambda x: tuple(
            halves(y, one(table[0][2:5]), one(table[1][2:5])) for y in outputs(x)
        ),
        "pairs": lambda x: neighbours(x.flatten(1, 2), cis[0, :, :, 0], cis[0, :, :, 1]),
    }
    cases = [(noise(1, 3, 2, 8),) for _ in range(2)]

    def build(g, x):
        like = {name: of(*cases[0]) for name, of in reference.items()}
        turned = g.call("aten.permute_copy.default", x, [0, 2, 1, 3], like=heads(cases[0][0]))
        exp = g.call("aten.exp.default", turned, like=heads(cases[0][0]))
        first = g.call("aten.slice_copy.Tensor", x, 2, 0, 1, 1, like=cases[0][0][:, :, :1])
        wide = g.call("aten.exp.default", x, like=cases[0][0])
        flat = g.call("aten.view_copy.default", x, [1, 6, 8], like=like["pairs"])
        return flattened(
            [
                g.call("et_vk.sdpa.default", turned, turned, exp, None, None, like=like["sdpa"]),
                g.call(
                    "et_vk.sdpa.default",
                    turned,
                    turned,
                    turned,
                    mask,
                    0.25,
                    like=like["sdpa with a mask"],
                ),
                g.call(
                    "et_vk.apply_rotary_emb.default", x, first, cos, sin, like=like["neighbours"]
                ),
                g.call(
                    "et_vk.apply_rotary_emb.default",
                    x,
                    wide,
                    *by_head,
                    like=like["neighbours by head"],
                ),
                g.call(
                    "et_vk.apply_rotary_emb_hf.default", x, first, *table, 2, like=like["halves"]
                ),
                g.call("et_vk.apply_rotary_emb_interleaved.default", flat, cis, like=like["pairs"]),
            ]
        )

    return Network(
        {"forward": Method(Ops(reference), cases)}, variants=("vulkan_fp32",), build=build
    )


class Cached(nn.Module):
    """A decoder's attention over caches `[batch, places, heads, size]`, which are kept."""

    def __init__(self):
        super().__init__()
        for name in ("keys", "values", "more"):
            self.register_buffer(name, torch.zeros(1, 8, 2, 4))
        self.angles = torch.rand(8, 4), torch.rand(8, 4)

    def forward(self, q, k, v, place):
        first, count = int(place[0]), k.shape[1]
        there = slice(first, first + count)
        self.keys[:, there], self.values[:, there] = k, v
        self.more[:, there] = v
        keys, values = (
            x[:, : first + count].transpose(1, 2).repeat_interleave(2, 1)
            for x in (self.keys, self.values)
        )
        seen = torch.ones(count, first + count, dtype=torch.bool).tril(first)
        out = F.scaled_dot_product_attention(q.transpose(1, 2), keys, values, seen).transpose(1, 2)
        others = self.more[:, : first + count].transpose(1, 2).repeat_interleave(2, 1)
        other = F.scaled_dot_product_attention(q.transpose(1, 2), others, others, seen).transpose(
            1, 2
        )
        turned = halves(q, *(table[there, None] for table in self.angles))
        return {"with caches": out, "of caches": other, "turned": turned}


@network
def vulkan_cache():
    """Caches that a graph keeps itself, and places that only a run knows."""
    module = Cached()
    cases = [
        (noise(1, 2, 4, 4), noise(1, 2, 2, 4), noise(1, 2, 2, 4), torch.tensor([place, 7]))
        for place in (0, 2, 4, 6)
    ]
    like = cases[0][0]

    def build(g, q, k, v, place):
        keys, values, more = (g.constant(torch.zeros(1, 8, 2, 4)) for _ in range(3))
        at = g.call("et_vk.select_as_symint.default", place, 0, 0, like=g.symbol())
        out = g.call(
            "sdpa_with_kv_cache.default",
            q,
            k,
            v,
            keys,
            values,
            at,
            2,
            None,
            0.0,
            True,
            None,
            like=like,
        )
        g.call("update_cache.default", v, more, at, like=torch.zeros(1))
        other = g.call(
            "llama.custom_sdpa.default", q, more, more, at, None, 0.0, True, None, like=like
        )
        alike = g.call(
            "et_vk.apply_rotary_emb_hf.default", q, k, *module.angles, at, like=(like, cases[0][1])
        )
        return out, other, alike[0]

    method = Method(module, cases)
    return Network({"forward": method}, variants=("vulkan_fp32",), build=build, sequence=True)


class Upscaled(nn.Module):
    """Images made larger, whose layers the exporter writes in eight bits."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, 1, 1)
        self.back = nn.ConvTranspose2d(8, 8, 4, 2, 1)
        self.last = nn.Conv2d(8, 12, 3, 1, 1)

    def forward(self, x):
        x = F.relu(self.back(F.relu(self.first(x))))
        return F.pixel_shuffle(self.last(x), 2)


@network
def upscaled_int8():
    cases = [(noise(1, 3, 8, 8),) for _ in range(3)]
    return forward(settled(Upscaled()), *cases, quantize=PER_CHANNEL, variants=("vulkan_int8",))


class Language(LanguageLayers):
    """A decoder as ExecuTorch's own example exports it, by its operators for caches."""

    def __init__(self):
        super().__init__()
        self.register_buffer("keys", torch.zeros(1, 16, 2, 4))
        self.register_buffer("values", torch.zeros(1, 16, 2, 4))

    def forward(self, ids, place):
        first = place[0].item()
        torch._check(first >= 0)
        torch._check(first < 16)
        torch._check(first + ids.shape[1] <= 16)
        x = self.words(ids)
        both = self.qkv(x).unflatten(-1, (8, 4))
        q, k, v = both[:, :, :4], both[:, :, 4:6], both[:, :, 6:]
        torch.ops.llama.update_cache(k, self.keys, first)
        torch.ops.llama.update_cache(v, self.values, first)
        seen = torch.ops.llama.custom_sdpa(q, self.keys, self.values, first, None, 0.0, True)
        return self.head(x + self.out(seen.flatten(2)))


@network
def vulkan_language():
    from executorch.extension.llm.custom_ops import custom_ops

    return language(Language, "vulkan_fp32")


@network
def vulkan_refused():
    """Steps of training."""
    method = Method(Ops({"copy": lambda x: x.clone()}), [(noise(2, 3),)])
    names = ("adamw_step", "fused_ce", "linear_dW", "linear_q4gsw_backward", "q4gsw_requant")
    names = tuple(f"et_vk.{name}.default" for name in names)

    def build(g, x):
        like = method.cases[0][0]
        for name in names:
            g.call(name, x, x, like=like)
        return [g.call("aten.clone.default", x, None, like=like)]

    variants = ("vulkan_fp32",)
    return Network({"forward": method}, variants=variants, build=build, refused=names)
