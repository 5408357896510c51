"""Groups around quantised tensors: bytes become numbers, operators compute with them, the results become bytes.

Scales are powers of two and sums are small, so every step is exact in float32 and a byte is what it is: also a
number half way between two steps, and whatever computes the group. Scales that are not are left to single
operators, whose answers may be a step apart.
"""

import numpy as np

from build import Dim, fixed
from operators import case, note, window

EXACT = (0.125, 0.25, 0.5, 1.0)
MICROSOFT = "com.microsoft"


class Quantised:
    """A quantised tensor: its bytes, with the names of its scale and zero point."""

    def __init__(self, b, name, dims, dtype, scale, zero, names):
        self.b, self.name, self.dims, self.dtype = b, name, dims, dtype
        self.scale, self.zero, self.names = scale, zero, names

    def numbers(self):
        return self.b.node("DequantizeLinear", [self.name, *self.names])


def grid(b, dtype=None, scale=None):
    dtype = dtype or b.pick("uint8", "int8")
    scale = scale or b.pick(*EXACT)
    low = 0 if dtype == "uint8" else -128
    zero = b.pick(low, low + 128, low + 128, low + b.between(0, 255))
    names = [b.stored(np.array(scale, np.float32)), b.stored(np.array(zero, dtype))]
    return dtype, scale, zero, names


def start(b, dims, scale=None):
    """A tensor that the model takes: of bytes, or of numbers that it rounds."""
    dtype, scale, zero, names = grid(b, scale=scale)
    if b.chance(0.4):
        name = b.input(dtype, dims, kind="any")
    else:
        # Half a step is half a step only where the scale is exact.
        steps = (lambda rng, shape: rng.integers(-300, 300, shape) / 4) if scale in EXACT else (lambda rng, shape: rng.uniform(-90, 90, shape))
        x = b.input("float32", dims, lambda rng, shape, _: steps(rng, shape) * scale)
        name = b.node("QuantizeLinear", [x, *names])
    return Quantised(b, name, dims, dtype, scale, zero, names)


def finish(b, number, dims, scale=None, like=None):
    """Numbers rounded to bytes, an activation before."""
    if b.chance(0.3):
        number = b.node("Relu", [number])
    if b.chance(0.3):
        low, high = b.pick(-3.0, 0.0, -0.25), b.pick(6.0, 4.25, 100.0)
        number = b.node("Clip", [number, b.stored(np.array(low, np.float32)), b.stored(np.array(high, np.float32))])
    if like is not None and b.chance(0.6):
        dtype, scale, zero, names = like.dtype, like.scale, like.zero, like.names
    else:
        dtype, scale, zero, names = grid(b, scale=scale)
    name = b.node("QuantizeLinear", [number, *names])
    return Quantised(b, name, dims, dtype, scale, zero, names)


def weights(b, shape, axis, exact):
    """Stored weights as numbers, and the scale of each output."""
    dtype = b.pick("int8", "int8", "uint8")
    count = shape[axis] if b.chance(0.6) else 1
    scales = [b.pick(*EXACT) if exact else float(b.rng.uniform(0.01, 0.2)) for _ in range(count)]
    if dtype == "int8":
        zeros = [b.pick(0, 0, 0, b.between(-4, 4)) for _ in range(count)]
        values = b.rng.integers(-128, 128, shape)
    else:
        zeros = [b.between(120, 136) for _ in range(count)]
        values = b.rng.integers(0, 256, shape)
    scales, zeros = np.array(scales, np.float32), np.array(zeros, dtype)
    if count == 1:
        scales, zeros = scales[0], zeros[0]
    names = [b.stored(values.astype(dtype)), b.stored(scales), b.stored(zeros)]
    number = b.node("DequantizeLinear", names, axis=axis if count > 1 else None)
    return number, np.broadcast_to(scales, (shape[axis],)), names


def bias(b, x, scales, exact):
    """What is added to each output: in steps of the sums, or real."""
    kind = b.pick("none", "steps", "steps", "real")
    if kind == "none":
        return []
    steps = b.rng.integers(-900, 900, len(scales))
    step = (x.scale * scales).astype(np.float32)
    if kind == "real":
        # Rounded to a step of the sums: whole ones are exact.
        return [b.stored((steps * step).astype(np.float32))]
    names = [b.stored(steps.astype(np.int32)), b.stored(step)]
    if b.chance(0.5):
        names.append(b.stored(np.zeros(len(scales), np.int32)))
    return [b.node("DequantizeLinear", names, axis=0)]


def convolution(b, x, exact=True):
    rank = len(x.dims) - 2
    channels = x.dims[1].sizes[0]
    group = b.pick(1, 1, channels)
    outs = group * b.between(1, 3) if group > 1 else b.pick(1, 3, 8, 17)
    kernel = [b.between(1, 3) for _ in range(rank)]
    attributes = {"group": group} if group > 1 else {}
    if b.chance(0.5):
        attributes["kernel_shape"] = kernel
    window(b, rank, kernel, attributes, x.dims[2:])
    w, scales, _ = weights(b, (outs, channels // group, *kernel), 0, exact)
    number = b.node("Conv", [x.numbers(), w, *bias(b, x, scales, exact)], **attributes)
    note(b, "Conv", attributes)
    return number, None


def product(b, x, exact=True):
    inputs, outputs = x.dims[-1].sizes[0], b.pick(1, 3, 16, 21)
    if len(x.dims) == 2 and b.chance(0.6):
        turned = b.chance(0.5)
        shape, axis = ((outputs, inputs), 0) if turned else ((inputs, outputs), 1)
        w, scales, _ = weights(b, shape, axis, exact)
        note(b, "Gemm", f"transB {turned}")
        number = b.node("Gemm", [x.numbers(), w, *bias(b, x, scales, exact)], transB=int(turned) if turned else None)
    else:
        w, _, _ = weights(b, (inputs, outputs), 1, exact)
        note(b, "MatMul")
        number = b.node("MatMul", [x.numbers(), w])
    return number, [*x.dims[:-1], Dim(outputs)]


def pair(b, x, exact=True):
    other = x
    if b.chance(0.8):
        dims = list(x.dims)
        if b.chance(0.3):
            dims[b.between(0, len(dims) - 1)] = Dim(1)
        if b.chance(0.2):
            dims = dims[1:]
        other = start(b, dims, None if exact else float(b.rng.uniform(0.01, 0.9)))
    name = b.pick("Add", "Add", "Sub", "Mul")
    note(b, name)
    sides = [x.numbers(), other.numbers()]
    if b.chance(0.3):
        sides.reverse()
    return b.node(name, sides), x.dims


def mean(b, x, exact=True):
    keeps = b.pick(0, 1)
    rank = len(x.dims)
    if rank > 2 and b.chance(0.4):
        note(b, "GlobalAveragePool")
        return b.node("GlobalAveragePool", [x.numbers()]), [*x.dims[:2], *fixed(*[1] * (rank - 2))]
    first = b.between(0, rank - 1)
    last = b.between(first, rank - 1)
    axes = list(range(first, last + 1))
    dims = [Dim(1) if at in axes else dim for at, dim in enumerate(x.dims)]
    if not keeps:
        dims = [dim for at, dim in enumerate(dims) if at not in axes]
    if b.chance(0.5):
        axes = [axis - rank for axis in axes]
    note(b, "ReduceMean", axes, f"keepdims {keeps}")
    if b.opset >= 18:
        return b.node("ReduceMean", [x.numbers(), b.stored(np.array(axes, np.int64))], keepdims=keeps), dims
    return b.node("ReduceMean", [x.numbers()], axes=axes, keepdims=keeps), dims


def without_gaps(attributes):
    """Strides that are no larger than windows where these decide the padding: it would be below zero."""
    if attributes.get("auto_pad", "").startswith("SAME") and "strides" in attributes:
        attributes["strides"] = [min(pair) for pair in zip(attributes["strides"], attributes["kernel_shape"])]


def largest(b, x, exact=True):
    rank = len(x.dims) - 2
    attributes = {"kernel_shape": [b.between(1, 3) for _ in range(rank)]}
    window(b, rank, attributes["kernel_shape"], attributes, x.dims[2:])
    if "auto_pad" in attributes:
        # ONNX Runtime leaves dilations out of account there.
        attributes.pop("dilations", None)
    without_gaps(attributes)
    note(b, "MaxPool", attributes)
    return b.node("MaxPool", [x.numbers()], **attributes), None


def averaged(b, x, exact=True):
    rank = len(x.dims) - 2
    kernel = [b.between(1, 4) for _ in range(rank)]
    attributes = {"kernel_shape": kernel}
    window(b, rank, kernel, attributes, x.dims[2:])
    padding = attributes.get("auto_pad", "")
    # Spread windows came late, ONNX Runtime pads them as if they were not, and larger ones than images are no windows.
    if b.opset < 19 or padding.startswith("SAME") or max(kernel) == 4:
        attributes.pop("dilations", None)
    if "dilations" in attributes:
        attributes["dilations"] = [1 if size == 3 else step for size, step in zip(kernel, attributes["dilations"])]
    without_gaps(attributes)
    if not padding and b.chance(0.4):
        attributes["ceil_mode"] = b.pick(0, 1, 1)
    if b.chance(0.6):
        attributes["count_include_pad"] = b.pick(0, 1, 1)
    note(b, "AveragePool", attributes)
    return b.node("AveragePool", [x.numbers()], **attributes), None


# Functions of one number, with the operator set that they came with.
FUNCTIONS = (
    ("Elu", 6), ("Erf", 9), ("Gelu", 20), ("HardSigmoid", 6), ("HardSwish", 14), ("LeakyRelu", 6),
    ("Mish", 18), ("Selu", 6), ("Sigmoid", 6), ("Softplus", 1), ("Softsign", 1), ("Tanh", 6),
)


def function(b, x, exact=True):
    name = b.pick(*[name for name, since in FUNCTIONS if b.opset >= since])
    attributes = {}
    if name in ("Elu", "LeakyRelu") and b.chance(0.6):
        attributes["alpha"] = b.pick(0.25, 0.5, 0.3)
    if name == "HardSigmoid" and b.chance(0.6):
        attributes = {"alpha": b.pick(0.25, 0.3), "beta": b.pick(0.5, 0.25)}
    if name == "Selu" and b.chance(0.3):
        attributes = {"alpha": 1.5, "gamma": 0.75}
    if name == "Gelu":
        attributes["approximate"] = b.pick(None, "none", "tanh")
    note(b, name, attributes)
    return b.node(name, [x.numbers()], **attributes), x.dims


def moved(b, x, exact=True):
    kind = b.pick("Transpose", "Flatten", "Concat", "Nothing", "Unsqueeze")
    note(b, kind)
    if kind == "Transpose":
        order = [int(axis) for axis in b.rng.permutation(len(x.dims))]
        return b.node(kind, [x.numbers()], perm=order), [x.dims[axis] for axis in order]
    if kind == "Flatten":
        return b.node(kind, [x.numbers()], axis=1), None
    if kind == "Concat":
        parts = [x.numbers(), start(b, x.dims).numbers()]
        return b.node(kind, parts, axis=b.pick(0, -1)), None
    if kind == "Unsqueeze":
        return b.node(kind, [x.numbers(), b.stored(np.array([0], np.int64))]), [Dim(1), *x.dims]
    return x.numbers(), x.dims


@case(16)
def quantised_groups(b):
    """One to four groups, each of which the next one reads."""
    b.opset = max(b.opset, 13)
    b.atol, b.rtol = 1e-6, 0
    rank = b.pick(2, 3, 4, 4, 4)
    dims = [b.dim(1, 3), Dim(b.pick(1, 3, 4, 16)), *b.dims(rank - 2, 4, 8)]
    if rank == 2:
        dims[1] = Dim(b.pick(1, 3, 4, 16))
    x = start(b, dims)
    for _ in range(b.between(1, 4)):
        made = [pair, mean, moved, function]
        if x.dims is not None and x.dims[-1].is_constant and len(x.dims) >= 2:
            made += [product, product]
        if 3 <= len(x.dims) <= 4 and x.dims[1].is_constant and all(min(dim.sizes) >= 4 for dim in x.dims[2:]):
            made += [convolution, convolution, convolution, largest, averaged, averaged]
        chosen = b.pick(*made)
        number, dims = chosen(b, x)
        # Most functions give small numbers.
        scales = (1 / 128, 1 / 32, 0.25) if chosen is function else (1.0, 4.0, 16.0)
        x = finish(b, number, dims, scale=b.pick(*scales), like=x)
        if b.chance(0.15):
            b.output(x.name)
        if not dims:
            break
    b.output(x.numbers() if b.chance(0.5) else x.name)


@case(6)
def quantised_operators(b):
    """One operator of any scales: a byte is a step apart where the sum is rounded otherwise."""
    b.opset = max(b.opset, 13)
    scale = float(b.rng.uniform(0.05, 0.5))
    b.atol, b.rtol = scale * 1.01, 0
    rank = b.pick(2, 4)
    dims = [b.dim(1, 3), Dim(b.pick(1, 3, 8)), *b.dims(rank - 2, 4, 8)]
    x = start(b, dims, float(b.rng.uniform(0.01, 0.2)))
    made = b.pick(pair, mean, product, function) if rank == 2 else b.pick(pair, mean, convolution, averaged, function)
    number, dims = made(b, x, exact=False)
    b.output(finish(b, number, dims, scale=scale).numbers())


@case(5)
def quantised_words(b):
    """Operators that ONNX Runtime has on bytes."""
    b.opset = max(b.opset, 13)
    name = b.pick(
        "QLinearAdd", "QLinearMul", "QLinearGlobalAveragePool", "QLinearAveragePool", "QLinearConcat",
        "QLinearLeakyRelu", "QLinearSigmoid", "QLinearReduceMean", "QGemm",
    )
    note(b, name)
    dims = [b.dim(1, 3), Dim(b.pick(1, 3, 8)), *b.dims(2, 4, 8)]
    if name == "QGemm":
        dims = dims[:2]
    dtype, scale, zero, names = grid(b, scale=b.pick(0.25, 1.0))
    # Its own arithmetic is not the standard's: a byte may be a step apart.
    b.atol, b.rtol = scale * 1.01, 0

    def part(dims):
        _, _, _, own = grid(b, dtype)
        return [b.input(dtype, dims, kind="any"), *own]

    first = part(dims)
    attributes = {}
    if name in ("QLinearAdd", "QLinearMul"):
        inputs = [*first, *part(dims), *names]
    elif name == "QLinearConcat":
        inputs, attributes = [*names, *first, *part(dims)], {"axis": 1}
    elif name == "QGemm":
        turned = b.pick(0, 1)
        size, outputs = dims[1].sizes[0], b.between(1, 20)
        b_scale = b.pick(*EXACT)
        shape = (outputs, size) if turned else (size, outputs)
        matrix = [b.stored(b.rng.integers(-128, 128, shape).astype(np.int8)), b.stored(np.float32(b_scale)), b.stored(np.int8(0))]
        added = b.stored(b.rng.integers(-500, 500, outputs).astype(np.int32))
        inputs, attributes = [*first, *matrix, added, *names], {"transB": turned}
        attributes |= {"transA": 0, "alpha": 1.0}
    else:
        inputs = [*first, *names]
        if name == "QLinearAveragePool":
            attributes = {"kernel_shape": [2, 2], "strides": b.pick([1, 1], [2, 2])}
            attributes |= b.pick({}, {"pads": [1, 0, 1, 1]}, {"auto_pad": "SAME_UPPER"}, {"ceil_mode": 1})
            attributes |= b.pick({}, {"count_include_pad": 1})
        if name == "QLinearReduceMean":
            attributes = {"axes": b.pick([2, 3], [1], [-1]), "keepdims": b.pick(0, 1)}
        if name == "QLinearLeakyRelu":
            attributes = {"alpha": 0.25}
    # As numbers: nobody infers the type of the bytes.
    b.output(b.node("DequantizeLinear", [b.node(name, inputs, domain=MICROSOFT, **attributes), *names]))
