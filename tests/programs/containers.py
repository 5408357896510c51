"""Programs that differ in how they are packed: methods, weights apart, tests, plain values."""

import torch
from harness import Method, Ops, Program, forward, program
from torch import nn


def noise(*shape):
    """Random values."""
    return torch.randn(*shape)


def shared():
    """Two methods with the same weights."""

    class Encode(nn.Module):
        def __init__(self, linear):
            super().__init__()
            self.linear = linear

        def forward(self, x):
            return self.linear(x).relu()

    class Score(nn.Module):
        def __init__(self, linear):
            super().__init__()
            self.linear = linear
            self.own = nn.Linear(4, 2)

        def forward(self, x, y):
            z = self.linear(x) + y
            return self.own(z), z.argmax(-1)

    linear = nn.Linear(5, 4)
    return {
        "encode": Method(Encode(linear), [(noise(2, 5),), (noise(2, 5),)]),
        "score": Method(Score(linear), [(noise(2, 5), noise(4)), (noise(2, 5), noise(4))]),
    }


CONSTANTS = {"get_max_length": 128, "get_scale": 0.5, "use_cache": True, "get_name": "shared"}


@program
def methods():
    return Program("methods", shared(), constants=CONSTANTS)


@program
def methods_xnnpack():
    return Program("methods xnnpack", shared(), options={}, constants=CONSTANTS)


@program
def external():
    """The weights are in a file of their own."""
    network = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    config = {"external_constants": True}
    return forward("external weights", network, (noise(2, 4),), config=config)


@program
def bundled():
    """A program that carries its own tests; one output is a whole number."""
    operators = {
        "sum": lambda x: x.sum(),
        "best": lambda x: x.argmax(),
        "softmax": lambda x: x.softmax(-1),
    }
    network = nn.Sequential(nn.Linear(3, 3), nn.Sigmoid())
    many = Method(Ops(operators), [(noise(2, 3),), (noise(2, 3),)])
    methods = {"network": Method(network, [(noise(1, 3),), (noise(1, 3),)]), "many": many}
    return Program("bundled", methods, bundle=True)


@program
def plain_values():
    """Inputs and outputs that are no tensors: an input has the value that it was exported with."""

    class Plain(nn.Module):
        def forward(self, x, times, shift, flag):
            y = x * times + shift if flag else x
            return y, times, x.shape[1], shift, flag

    return forward("plain values", Plain(), (noise(2, 3), 3, 0.5, True))


@program
def rank_zero():
    """Tensors without dimensions, and without elements."""
    operators = {
        "add": lambda a, n, e: a + n,
        "view": lambda a, n, e: a.view(1, 1),
        "sum_of_nothing": lambda a, n, e: e.sum(),
        "sums_of_nothing": lambda a, n, e: e.sum(1),
        "nothing": lambda a, n, e: e * 2,
        "cat": lambda a, n, e: torch.cat([e, a.expand(2, 1)], 1),
    }
    inputs = torch.tensor(1.5), torch.tensor(7), torch.zeros(2, 0)
    return forward("plain values", Ops(operators), inputs)
