"""Programs that remember, and programs that decide what to do next."""

import torch
from harness import Method, Program, forward, program, skipped
from torch import nn
from torch.nn import functional as F

skipped("torch.while_loop", "the exporter knows no loops but map and scan")
skipped("torch.cond around what XNNPACK takes whole, as a linear layer", "it does not export")


def noise(*shape):
    """Random values."""
    return torch.randn(*shape)


def remembering(network, *calls, delegated=False, **rest):
    """A program of which one loaded method is called again and again."""
    options = {} if delegated else None
    family = "state xnnpack" if delegated else "state"
    return forward(family, network, *calls, sequence=True, options=options, **rest)


def starting_with(*names):
    """Buffers with these names start as they are in the network: all others start as zeros."""
    from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass

    return {"passes": [InitializedMutableBufferPass(list(names))]}


@program
def counter():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(1, dtype=torch.int64))
            self.register_buffer("total", torch.zeros(3))

        def forward(self, x):
            self.count.add_(1)
            self.total.add_(x)
            return self.total / self.count, self.count.clone()

    return remembering(Counter(), *((noise(3),) for _ in range(4)))


@program
def started_counter():
    """It does not start with zeros."""

    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("started", torch.tensor([1.5, -2.0, 100.0]))

        def forward(self, x):
            before = self.started.clone()
            self.started.mul_(0.5).add_(x)
            return before, self.started * 1

    calls = [(noise(3),) for _ in range(4)]
    return remembering(Counter(), *calls, config=starting_with("started"))


@program
def window():
    """A convolution over a stream: what it will need again is kept."""

    class Window(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv1d(2, 3, 3)
            self.register_buffer("kept", torch.zeros(1, 2, 2))

        def forward(self, x):
            all_of_it = torch.cat([self.kept, x], 2)
            self.kept.copy_(all_of_it[:, :, -2:])
            return self.conv(all_of_it)

    return remembering(Window(), *((noise(1, 2, 2),) for _ in range(4)))


@program
def window_xnnpack():
    return Program(
        "state xnnpack",
        {
            "forward": Method(
                window().methods["forward"].network, [(noise(1, 2, 2),) for _ in range(4)]
            )
        },
        options={},
        sequence=True,
    )


@program
def recurrent_state():
    """An LSTM's cell whose state stays inside."""

    class Cell(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.LSTMCell(3, 4)
            self.register_buffer("h", torch.zeros(1, 4))
            self.register_buffer("c", torch.zeros(1, 4))

        def forward(self, x):
            h, c = self.cell(x, (self.h, self.c))
            self.h.copy_(h)
            self.c.copy_(c)
            return h + 0

    return remembering(Cell(), *((noise(1, 3),) for _ in range(4)), delegated=True)


class Cached(nn.Module):
    """Attention over everything that was seen, one new position a call."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(8, 8, bias=False) for _ in range(3))
        self.register_buffer("keys", torch.zeros(1, 2, 6, 4))
        self.register_buffer("values", torch.zeros(1, 2, 6, 4))
        self.register_buffer("mask", torch.ones(6, 6, dtype=torch.bool).tril())

    def forward(self, x, position):
        q, k, v = (part(x).view(1, 1, 2, 4).transpose(1, 2) for part in (self.q, self.k, self.v))
        self.keys[:, :, position] = k
        self.values[:, :, position] = v
        scores = q @ self.keys.transpose(2, 3) * 0.5
        y = F.softmax(scores.masked_fill(~self.mask[position], -1e9), -1) @ self.values
        return y.transpose(1, 2).reshape(1, 1, 8)


def positions(count):
    """Calls for positions one after another."""
    return [(noise(1, 1, 8), torch.tensor([i])) for i in range(count)]


@program
def cache_by_index():
    return remembering(Cached(), *positions(4))


@program
def cache_xnnpack():
    return remembering(Cached(), *positions(4), delegated=True)


@program
def cache_in_place():
    """Writes to the cache are operators in place."""

    class Rows(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("rows", torch.zeros(6, 4))

        def forward(self, x, positions):
            self.rows[positions] = x
            return self.rows.cumsum(0), self.rows[positions + 1]

    calls = [(noise(2, 4), torch.tensor(at)) for at in ([0, 1], [3, 2], [3, 4], [1, 0])]
    return remembering(Rows(), *calls, config={"run_reinplace_pass": True})


@program
def cache_of_llama():
    """The custom operators of language models: a cache and an attention that knows its length."""
    from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401

    class Llama(nn.Module):
        def __init__(self):
            super().__init__()
            self.q = nn.Linear(8, 16, bias=False)
            self.k, self.v = (nn.Linear(8, 8, bias=False) for _ in range(2))
            self.register_buffer("keys", torch.zeros(1, 8, 2, 4))
            self.register_buffer("values", torch.zeros(1, 8, 2, 4))

        def forward(self, x, position):
            start = position[0].item()
            torch._check_is_size(start)
            torch._check(start < 8)
            length = x.shape[1]
            q = self.q(x).view(1, length, 4, 4)
            k, v = (part(x).view(1, length, 2, 4) for part in (self.k, self.v))
            torch.ops.llama.update_cache(k, self.keys, start)
            torch.ops.llama.update_cache(v, self.values, start)
            y = torch.ops.llama.custom_sdpa(q, self.keys, self.values, start, None, 0.0, True, None)
            return y.reshape(1, length, 16)

    calls = [(noise(1, 1, 8), torch.tensor([i])) for i in range(5)]
    return remembering(Llama(), *calls)


@program
def cache_of_llama_prompt():
    """Several positions at once, then one by one: the length of the input varies."""
    from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401

    network = cache_of_llama().methods["forward"].network
    length = torch.export.Dim("length", min=1, max=7)
    calls = [(noise(1, n, 8), torch.tensor([at])) for n, at in ((3, 0), (1, 3), (2, 4), (1, 6))]
    return remembering(network, *calls, dynamic=({1: length}, None), delegated=True)


@program
def attention_of_llama():
    """Its attention with a mask, without one, and with a scale of its own."""
    from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401

    class Attention(nn.Module):
        def forward(self, q, k, v, mask):
            attend = torch.ops.llama.custom_sdpa
            return (
                attend(q, k, v, 0, mask, 0.0, False, None),
                attend(q, k, v, 0, None, 0.0, True, None),
                attend(q, k, v, 2, None, 0.0, True, 0.25),
                torch.ops.llama.fast_hadamard_transform(q),
            )

    inputs = noise(1, 3, 4, 8), noise(1, 6, 2, 8), noise(1, 6, 2, 8), noise(3, 6)
    return forward("portable", Attention(), inputs)


class Branches(nn.Module):
    """One of two ways, by what the values are."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x, y):
        def grow(x, y):
            return self.linear(x) * 2 + y, x.abs()

        def shrink(x, y):
            return x - y, y * 0.5

        a, b = torch.cond(x.sum() > 0, grow, shrink, (x, y))
        return a + 1, b


@program
def branches():
    x = noise(2, 3).abs()
    return forward("control flow", Branches(), (x, noise(2, 3)), (-x, noise(2, 3)))


@program
def branches_xnnpack():
    """Delegates before the branches and after them."""

    class Between(nn.Module):
        def __init__(self):
            super().__init__()
            self.before, self.after = nn.Linear(3, 3), nn.Linear(3, 2)

        def forward(self, x):
            y = self.before(x).tanh()
            z = torch.cond(x.sum() > 0, lambda y: y.sign(), lambda y: y.floor(), (y,))
            return self.after(z)

    x = noise(2, 3).abs()
    return forward("control flow", Between(), (x,), (-x,), options={})


@program
def branches_nested():
    class Nested(nn.Module):
        def forward(self, x, n):
            def many(x):
                return torch.cond(x.sum() > 10, lambda x: x * 0.1, lambda x: x * 10, (x,))

            return torch.cond(n > 1, many, lambda x: x + 1, (x,))

    x = torch.arange(4.0)
    calls = [(x, torch.tensor(0)), (x, torch.tensor(2)), (x * 3, torch.tensor(2))]
    return forward("control flow", Nested(), *calls)


@program
def mapped():
    """The same for every row."""
    from functorch.experimental.control_flow import map as map_rows

    class Mapped(nn.Module):
        def forward(self, xs, y):
            return map_rows(lambda x, y: x * 2 + y.abs(), xs, y)

    return forward("control flow", Mapped(), (noise(3, 4), noise(4)))


@program
def scanned():
    """A running value from row to row."""
    from torch._higher_order_ops.scan import scan

    class Scanned(nn.Module):
        def forward(self, start, xs):
            def step(carry, x):
                following = carry * 0.5 + x
                return following, following * 2

            return scan(step, start, xs)

    return forward("control flow", Scanned(), (noise(3), noise(4, 3)))


@program
def shared_state():
    """What one method writes the other reads."""
    from executorch.exir.passes import MemoryPlanningPass

    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("kept", torch.zeros(3))

        def forward(self, x):
            self.kept.add_(x)
            return self.kept * 2

    class Reader(nn.Module):
        def __init__(self, shared):
            super().__init__()
            self.register_buffer("kept", shared.kept)

        def forward(self, x):
            return self.kept + x

    writer = Shared()
    methods = {
        "write": Method(writer, [(noise(3),) for _ in range(3)]),
        "read": Method(Reader(writer), [(noise(3),) for _ in range(3)]),
    }
    planning = MemoryPlanningPass(share_mutable_buffers=True)
    config = {"memory_planning_pass": planning, "emit_mutable_buffer_names": True}
    order = ["write", "read", "write", "read", "read", "write"]
    return Program("state", methods, sequence=order, config=config)
