"""What exporters write at the edges of an operator's definition: bounds past their axis, numbers that a run computes or
that have a dimension, NaN in recurrences.

Every twentieth case is one of these, so that all others stay what their seed and number made them.
"""

import numpy as np

from build import CODES, Dim

EVERY = 20
EDGES = []


def edge(function):
    EDGES.append(function)
    return function


def build_edge(b):
    chosen = EDGES[int(b.rng.integers(len(EDGES)))]
    b.label = f"edge/{chosen.__name__}"
    chosen(b)


def integers(b, values, kind="int64"):
    """Integers that the model stores or takes, or that it computes of float32."""
    if b.chance(0.7):
        return b.given(np.array(values, kind), 0.6)
    given = b.given(np.array(np.clip(values, -(2**20), 2**20), np.float32), 0.0)
    return b.node("Cast", [given], to=CODES[kind])


@edge
def bounds(b):
    dtype = b.pick("float32", "int64", "uint8", "bool", "float16")
    rank = b.between(1, 3)
    axis = b.axis(rank)
    start, end = b.pick(0, 2, 3, 7, 100, -1, -2, -100), b.pick(0, 1, 2, -1, -3, -100, 4, 2**40)
    # Where the standard's text and NumPy differ: a start before all, backwards.
    step = b.pick(1, 1, 1, 2, -1, -2) if start > -100 else b.pick(1, 2)
    if step < 0 and end > 100:
        end = 0
    b.label += f"/{dtype}/{start}:{end}:{step}"
    x = b.input(dtype, b.dims(rank, 1, 5))
    names = [x, integers(b, [start]), integers(b, [end]), b.given(np.array([axis], np.int64), 1.0)]
    b.output(b.node("Slice", [*names, integers(b, [step])]))


@edge
def scalars(b):
    name = b.pick("Range", "CumSum", "Trilu", "TopK", "OneHot")
    b.opset = max(b.opset, 14)
    b.label += f"/{name}"
    if name == "Range":
        step = b.pick(1, 2, -1, -3)
        numbers = [b.between(-4, 8), b.between(-4, 8), step]
        # Shape inference of ONNX Runtime refuses stored numbers with a dimension.
        b.output(b.node(name, [b.given(np.array([number], np.int64), 0.0) for number in numbers]))
    elif name == "TopK":
        dims = b.dims(2, 3, 6)
        dtype = b.pick("float32", "int64", "float16")
        top = b.node(name, [b.input(dtype, dims), integers(b, [b.between(1, 3)])], 2, axis=b.axis(2), largest=b.pick(0, 1))
        # Of equals the places are nobody's to say.
        b.output(top[0])
    elif name == "OneHot":
        values = b.stored(np.array([0, 1], np.float32))
        indices = b.input("int64", b.dims(2, 1, 3), lambda rng, shape, _: rng.integers(0, 6, shape))
        b.output(b.node(name, [indices, integers(b, [b.between(2, 5)]), values], axis=b.axis(3)))
    else:
        number = b.between(-2, 1)
        b.output(b.node(name, [b.input("float32", b.dims(2, 1, 4)), b.given(np.array([number], np.int64))]))


@edge
def nan(b):
    name, gates = b.pick(("LSTM", 4), ("GRU", 3), ("RNN", 1))
    # Not in the recurrence's weights: NumPy's products skip zeros, which the first state is.
    place = b.pick("input", "weights", "bias")
    b.label += f"/{name}/{place}"
    size, width = b.between(1, 4), b.between(1, 3)

    def values(here):
        def make(rng, shape, _):
            made = rng.standard_normal(shape)
            if here == place:
                made.flat[int(rng.integers(made.size))] = np.nan
            return made

        return make

    x = b.input("float32", [b.dim(1, 4), b.dim(1, 2), Dim(width)], values("input"))
    parts = []
    for here, shape in (
        ("weights", (1, gates * size, width)),
        ("recurrence", (1, gates * size, size)),
        ("bias", (1, 2 * gates * size)),
    ):
        parts.append(b.stored(values(here)(b.rng, shape, 0).astype(np.float32)))
    b.output(*b.node(name, [x, *parts], 2, hidden_size=size))
