"""Single operators over their attributes, dtypes, shapes and kinds of values."""

import numpy as np
from onnx import TensorProto, helper

from build import CODES, FLOATS, INTEGERS, SETS, Dim, Skip, fixed

OPERATORS = []


def case(weight=1):
    def register(function):
        OPERATORS.append((function, weight))
        return function

    return register


def build_operator(b):
    weights = np.array([weight for _, weight in OPERATORS], float)
    chosen, _ = OPERATORS[int(b.rng.choice(len(OPERATORS), p=weights / weights.sum()))]
    b.label = chosen.__name__
    chosen(b)


def note(b, *parts):
    b.label = "/".join([b.label, *map(str, parts)])


def half(b, dtype):
    if dtype == "float16":
        b.rtol, b.atol = 1e-2, 2e-3


def float_dtype(b):
    dtype = b.pick("float32", "float32", "float32", "float16", "float64")
    half(b, dtype)
    return dtype


def number_dtype(b):
    return float_dtype(b) if b.chance(0.6) else b.pick(*INTEGERS)


# ---- element by element ----

UNARY = (
    "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid HardSwish "
    "Identity IsInf IsNaN LeakyRelu Log Mish Neg Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh "
    "Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu"
).split()
SINCE = {"Gelu": 20, "HardSwish": 14, "Mish": 18, "Celu": 12, "Swish": 24, "BitwiseNot": 18}
INTEGER_UNARY = {"Abs", "Neg", "Sign", "Identity", "Relu", "Shrink"}


@case(10)
def unary(b):
    name = b.pick(*UNARY)
    b.opset = max(b.opset, SINCE.get(name, 0))
    dtype = float_dtype(b)
    if name in INTEGER_UNARY and b.chance(0.4):
        dtype = b.pick(*INTEGERS)
        b.opset = max(b.opset, 14)
        if name in ("Neg", "Relu") and dtype.startswith("u"):
            dtype = dtype[1:]
    attributes = {}
    if name in ("Celu", "Elu", "LeakyRelu", "HardSigmoid", "Selu", "ThresholdedRelu", "Swish") and b.chance(0.6):
        attributes["alpha"] = b.pick(0.25, 1.0, 1.5, 0.01)
    if name == "HardSigmoid" and b.chance(0.5):
        attributes["beta"] = b.pick(0.25, 0.5)
    if name == "Selu" and b.chance(0.5):
        attributes["gamma"] = b.pick(0.5, 1.5)
    if name == "Shrink" and b.chance(0.7):
        attributes["bias"], attributes["lambd"] = b.pick(0.0, 0.5), b.pick(0.5, 1.5)
    if name == "Gelu":
        attributes["approximate"] = b.pick("none", "tanh")
    if name == "IsInf" and b.chance(0.5):
        attributes["detect_negative"], attributes["detect_positive"] = b.pick(0, 1), b.pick(0, 1)
    kind = None
    if dtype in FLOATS:
        kind = b.pick("normal", "wide", "extreme", "extreme", "grid", "large", "very negative", "very positive", "tiny")
        if name in ("Sin", "Cos", "Tan") and kind in ("large", "extreme"):
            kind = "wide"
        if name in ("Acos", "Asin", "Atanh") and b.chance(0.7):
            kind = "unit"
    note(b, name, dtype, kind)
    dims = b.dims(b.between(0, 4), 1, 7) if b.chance(0.7) else fixed(b.between(1, 3), b.between(7, 70))
    b.output(b.node(name, [b.input(dtype, dims, kind=kind)], **attributes))


def broadcast_dims(b, count=2, low=1):
    """Shapes that broadcast into each other."""
    rank = b.between(0, 4)
    whole = b.dims(rank, low, 4)
    shapes = []
    for _ in range(count):
        keep = b.between(0, rank) if b.chance(0.4) else rank
        dims = whole[rank - keep :]
        shapes.append([Dim(1) if b.chance(0.3) else dim for dim in dims])
    return shapes


BINARY = "Add Sub Mul Div Pow Mod Equal Greater GreaterOrEqual Less LessOrEqual PRelu".split()


def operand(b, dtype, dims, kind=None):
    """An input, or sometimes a stored tensor."""
    if b.chance(0.25) and all(dim.is_constant and not dim.name for dim in dims):
        return b.weights(dtype, [dim.sizes[0] for dim in dims], kind)
    return b.input(dtype, dims, kind=kind)


@case(9)
def binary(b):
    name = b.pick(*BINARY, "Div", "Pow", "Mod", "Mod")
    b.opset = max(b.opset, 14)
    dtype = number_dtype(b)
    left, right = broadcast_dims(b)
    if name == "Pow" and dtype not in (*FLOATS, "int32", "int64"):
        dtype = "int32"
    attributes, kinds = {}, [None, None]
    if name in ("PRelu",):
        if b.opset < 16 and dtype not in FLOATS + ("int32", "uint32", "int64", "uint64"):
            dtype = "float32"
        if len(right) > len(left):
            left, right = right, left
        left = [dim if not dim.is_one else other for dim, other in zip(left, [Dim(1)] * (len(left) - len(right)) + right)]
    if dtype not in FLOATS:
        if name in ("Div", "Mod"):
            kinds[1] = "positive"
            if dtype.startswith("i") and b.chance(0.6):
                kinds[1] = lambda rng, shape, _: rng.choice([-7, -3, -2, -1, 1, 2, 3, 5], shape)
        if name == "Pow":
            # What goes beyond 64 bits, or below zero, is nowhere defined.
            kinds = ["small", lambda rng, shape, _: rng.integers(0, 4, shape)]
        if name == "Sub" and dtype.startswith("u"):
            kinds = [lambda rng, shape, _: rng.integers(50, 100, shape), "small"]
        if name in ("Add", "Mul", "Sub") and dtype in ("int8", "uint8") and kinds == [None, None]:
            kinds = ["small", "small"]
    else:
        kinds = [b.pick("normal", "wide", "grid", "extreme", "positive") for _ in range(2)]
        if name == "Pow":
            kinds = [b.pick("positive", "ones", "normal", "extreme"), b.pick("ones", "grid", "normal", "extreme")]
    if name == "Mod":
        if dtype in FLOATS:
            attributes["fmod"] = 1
        elif b.chance(0.5):
            attributes["fmod"] = b.pick(0, 1)
    note(b, name, dtype, *[kind for kind in kinds if isinstance(kind, str)], *attributes.items())
    names = []
    for dims, kind in zip((left, right), kinds):
        names.append(b.input(dtype, dims, values=kind) if callable(kind) else operand(b, dtype, dims, kind))
    if name == "Pow" and (dtype in FLOATS and kinds[1] != "extreme" or dtype == "int32") and b.chance(0.3):
        other = b.pick("float32", "int64", "int32") if dtype in FLOATS else "int64"
        note(b, "by", other)
        exponents = None if other == "float32" else lambda rng, shape, _: rng.integers(0, 4, shape)
        names[1] = b.input(other, right, exponents, kind="ones")
    b.output(b.node(name, names, **attributes))


@case(4)
def variadic(b):
    name = b.pick("Max", "Min", "Sum", "Mean")
    dtype = number_dtype(b) if name in ("Max", "Min") else float_dtype(b)
    b.opset = max(b.opset, 12)
    kind = b.pick("normal", "extreme", "grid") if dtype in FLOATS else None
    shapes = broadcast_dims(b, b.between(1, 3))
    note(b, name, dtype, kind, len(shapes))
    b.output(b.node(name, [operand(b, dtype, dims, kind) for dims in shapes]))


@case(2)
def logic(b):
    name = b.pick("And", "Or", "Xor", "Not")
    shapes = broadcast_dims(b, 1 if name == "Not" else 2)
    note(b, name)
    b.output(b.node(name, [b.input("bool", dims) for dims in shapes]))


@case(2)
def bits(b):
    name = b.pick("BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot")
    dtype = b.pick(*INTEGERS)
    attributes = {}
    if name == "BitShift":
        dtype = b.pick("uint8", "uint16", "uint32", "uint64")
        attributes["direction"] = b.pick("LEFT", "RIGHT")
    else:
        b.opset = max(b.opset, 18)
    shapes = broadcast_dims(b, 1 if name == "BitwiseNot" else 2)
    note(b, name, dtype)
    kind = "bits" if name == "BitShift" else "any"
    b.output(b.node(name, [b.input(dtype, dims, kind=kind) for dims in shapes], **attributes))


@case(2)
def where(b):
    dtype = b.pick("bool", number_dtype(b), number_dtype(b))
    condition, left, right = broadcast_dims(b, 3)
    note(b, dtype)
    names = [b.input("bool", condition), operand(b, dtype, left), operand(b, dtype, right)]
    b.output(b.node("Where", names))


@case(3)
def clip(b):
    dtype = number_dtype(b)
    b.opset = max(b.opset, 12)
    kind = b.pick("normal", "extreme", "wide") if dtype in FLOATS else None
    low, high = sorted(int(value) for value in b.rng.integers(-3, 6, 2))
    if dtype.startswith("u"):
        low, high = abs(low), abs(low) + abs(high)
    names = [b.input(dtype, b.dims(b.between(0, 3)), kind=kind)]
    names.append(b.given(np.array(low, dtype)) if b.chance(0.7) else "")
    names.append(b.given(np.array(high, dtype)) if b.chance(0.7) else "")
    note(b, dtype, kind)
    b.output(b.node("Clip", names))


@case(3)
def cast(b):
    source, target = (b.pick("bool", *FLOATS, *INTEGERS) for _ in range(2))
    kind = None
    if source in FLOATS:
        # Numbers beyond the target's range are no one's to define.
        kind = b.pick("grid", "normal") if target not in FLOATS else b.pick("normal", "extreme", "large")
        if target.startswith("u"):
            kind = "positive"
        if target == "bool":
            kind = b.pick("ones", "extreme", "tiny")
    elif source in INTEGERS:
        kind = b.pick("small", "any", "full")
    note(b, source, target, kind)
    x = b.input(source, b.dims(b.between(0, 3)), kind=kind)
    if b.opset >= 15 and b.chance(0.3):
        b.output(b.node("CastLike", [x, b.input(target, fixed(1), kind=None)]))
    else:
        b.output(b.node("Cast", [x], to=CODES[target]))


# ---- reductions ----

REDUCE = "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare"


@case(10)
def reduce(b):
    name = b.pick(*REDUCE.split())
    b.opset = max(b.opset, 11)
    dtype = float_dtype(b) if b.chance(0.75) else b.pick("int32", "int64", "int32", "int8", "uint8")
    if name in ("ReduceLogSum", "ReduceLogSumExp") and dtype not in FLOATS:
        # What a logarithm is among whole numbers is nowhere said.
        dtype = "float32"
    if dtype in ("int8", "uint8") and (name not in ("ReduceMax", "ReduceMin") or b.opset < 12):
        dtype = "int32"
    rank = b.between(0, 4)
    # The mean of nothing is undefined.
    empty = b.chance(0.12) and name != "ReduceMean"
    dims = b.dims(rank, 0 if empty else 1, 4)
    kind = None
    if dtype in FLOATS:
        kind = b.pick("normal", "grid", "wide", "normal", "extreme", "very positive", "very negative")
        if name in ("ReduceLogSum",):
            kind = b.pick("positive", "extreme")
        if name == "ReduceProd":
            kind = b.pick("ones", "unit", "normal", "extreme")
        if kind == "extreme" and name not in ("ReduceMax", "ReduceMin", "ReduceLogSumExp"):
            # What leaves the dtype's range on the way hangs on the order, which is nobody's mistake.
            kind = "infinite"
    x = b.input(dtype, dims, kind=kind)
    attributes = {}
    if b.chance(0.7):
        attributes["keepdims"] = b.pick(0, 1)
    names, axes = [x], None
    if rank and b.chance(0.8):
        count = b.between(0, rank) if b.chance(0.3) else b.between(1, rank)
        axes = [int(axis) for axis in b.rng.permutation(rank)[:count]]
        axes = [axis - rank if b.chance(0.3) else axis for axis in axes]
    by_input = b.opset >= (13 if name == "ReduceSum" else 18)
    if by_input:
        if axes is not None:
            names.append(b.given(np.array(axes, np.int64)))
        if b.chance(0.3):
            attributes["noop_with_empty_axes"] = b.pick(0, 1)
    elif axes:
        attributes["axes"] = axes
    note(b, name, dtype, kind, "empty" if empty else "", f"axes {axes} {attributes}")
    b.output(b.node(name, names, **attributes))


@case(3)
def arg(b):
    name = b.pick("ArgMax", "ArgMin")
    dtype = number_dtype(b)
    b.opset = max(b.opset, 13)
    rank = b.between(1, 4)
    attributes = {"axis": b.axis(rank)} if b.chance(0.8) else {}
    if b.chance(0.6):
        attributes["keepdims"] = b.pick(0, 1)
    if b.chance(0.5):
        attributes["select_last_index"] = b.pick(0, 1)
    note(b, name, dtype, attributes)
    kind = b.pick("ones", "normal", "grid") if dtype in FLOATS else None
    b.output(b.node(name, [b.input(dtype, b.dims(rank), kind=kind)], **attributes))


@case(2)
def cumsum(b):
    dtype = b.pick("float32", "float64", "int32", "int64")
    rank = b.between(1, 3)
    attributes = {"exclusive": b.pick(0, 1), "reverse": b.pick(0, 1)}
    note(b, dtype, attributes)
    axis = b.given(np.array(b.axis(rank), b.pick("int32", "int64")))
    b.output(b.node("CumSum", [b.input(dtype, b.dims(rank)), axis], **attributes))


@case(5)
def softmax(b):
    name = b.pick("Softmax", "LogSoftmax", "Hardmax")
    dtype = float_dtype(b)
    rank = b.between(1, 4)
    attributes = {"axis": b.axis(rank)} if b.chance(0.8) else {}
    kind = b.pick("normal", "wide", "very positive", "very negative", "extreme")
    if name == "Hardmax":
        kind = b.pick("normal", "ones")
    note(b, name, dtype, kind, f"opset {b.opset}", attributes)
    b.output(b.node(name, [b.input(dtype, b.dims(rank), kind=kind)], **attributes))


# ---- products ----

EINSUM = (
    "ij-> ij->i ij->j ij->ji ij,jk->ik ij,jk ij,kj->ik i,i-> i,i i,j->ij ij,ij-> ij,ij->i ij,ij->ij bij,bjk->bik "
    "bij,bkj->bik bhid,bhjd->bhij bhij,bhjd->bhid ijk->kji ijk->ik ijk-> ij,j->i ij,i->j i,ij-> i,ij,j-> ij,jk,kl->il "
    "ii->i ii-> ...ij,...jk->...ik ...ij->...ji b...i,b...i->b... ij,kl->ijkl abc,cd->abd abc,acd->abd ab,abc->ac "
    "bqhd,bkhd->bhqk bhqk,bkhd->bqhd ij,k->ik a,ab,b->ab i->i i-> ->"
).split()


@case(6)
def einsum(b):
    b.opset = max(b.opset, 12)
    equation = b.pick(*EINSUM)
    dtype = b.pick("float32", "float32", "float64", "int32", "int64", "float16")
    half(b, dtype)
    sizes, extra = {}, b.dims(b.between(0, 2), 1, 3, 0)
    names = []
    for term in equation.split("->")[0].split(","):
        dims = []
        for letter in term.replace("...", "."):
            if letter == ".":
                dims += extra
            else:
                dims.append(sizes.setdefault(letter, b.dim(1, 4)))
        names.append(operand(b, dtype, dims))
    written = equation
    if b.chance(0.2):
        written = equation.replace("->", " -> ").replace(",", ", ")
    note(b, equation, dtype)
    b.output(b.node("Einsum", names, equation=written))


@case(6)
def matmul(b):
    name = b.pick("MatMul", "MatMul", "MatMul", "MatMulInteger", "QLinearMatMul")
    k, m, n = b.dim(1, 9), b.dim(1, 9), b.dim(1, 9)
    batch = broadcast_dims(b, 2)
    left, right = batch[0][:2] + [m, k], batch[1][:2] + [k, n]
    # Prefixes that still broadcast into each other.
    if len(left) > 2 and len(right) > 2:
        right = left[-4:-2][-(len(right) - 2) :] + [k, n] if len(left) >= len(right) else right
        left = right[:-2][-(len(left) - 2) :] + [m, k]
        left = [Dim(1) if b.chance(0.3) and place < len(left) - 2 else dim for place, dim in enumerate(left)]
    if name == "MatMul":
        if b.chance(0.15):
            left = [k]
        if b.chance(0.15):
            right = [k, n] if len(left) > 1 and b.chance(0.3) else [k]
        dtype = b.pick("float32", "float32", "float32", "float64", "int32", "int64", "float16")
        half(b, dtype)
        note(b, name, dtype)
        b.output(b.node(name, [operand(b, dtype, left), operand(b, dtype, right)]))
        return
    left_type, right_type = b.pick("uint8", "int8"), b.pick("uint8", "int8")
    note(b, name, left_type, right_type)
    x, y = operand(b, left_type, left, "any"), operand(b, right_type, right, "any")
    if name == "MatMulInteger":
        zeros = [b.given(np.array(b.between(0, 5), dtype)) if b.chance(0.6) else "" for dtype in (left_type, right_type)]
        b.output(b.node(name, [x, y, *zeros]))
        return
    out = b.pick("uint8", "int8")
    parts = []
    for dtype, tensor, scale in ((left_type, x, 0.5), (right_type, y, 0.25), (out, None, 16.0)):
        parts += [tensor] if tensor else []
        parts += [b.given(np.array(scale * b.pick(1.0, 0.9), np.float32)), b.given(np.array(b.between(0, 5), dtype))]
    b.output(b.node(name, parts))


@case(4)
def gemm(b):
    dtype = b.pick("float32", "float32", "float64", "int32", "float16")
    half(b, dtype)
    m, k, n = b.dim(1, 9), b.dim(1, 9), b.dim(1, 9)
    across, down = b.pick(0, 1), b.pick(0, 1)
    names = [operand(b, dtype, [k, m] if across else [m, k]), operand(b, dtype, [n, k] if down else [k, n])]
    if b.chance(0.7):
        bias = b.pick([m, n], [n], [Dim(1), n], [m, Dim(1)], [Dim(1)], [])
        names.append(operand(b, dtype, bias))
    attributes = {"transA": across, "transB": down}
    if b.chance(0.5):
        attributes["alpha"] = b.pick(0.5, 2.0, 0.0)
        attributes["beta"] = b.pick(0.5, 2.0, 0.0)
    note(b, dtype, attributes, len(names))
    b.output(b.node("Gemm", names, **attributes))


def window(b, rank, kernel, attributes, sizes):
    """Strides, dilations and padding of a window."""
    if b.chance(0.5):
        attributes["strides"] = [b.between(1, 3) for _ in range(rank)]
    if b.chance(0.3):
        attributes["dilations"] = [b.between(1, 2) for _ in range(rank)]
    choice = b.pick("none", "pads", "pads", "SAME_UPPER", "SAME_LOWER", "VALID")
    if choice == "pads":
        attributes["pads"] = [b.between(0, max(kernel[axis % rank] - 1, 0)) for axis in range(2 * rank)]
    elif choice != "none":
        attributes["auto_pad"] = choice
    if choice.startswith("SAME"):
        b.label += f"/{choice}"
    del sizes


@case(7)
def conv(b):
    name = b.pick("Conv", "Conv", "Conv", "ConvTranspose", "ConvTranspose", "ConvInteger", "QLinearConv")
    rank = b.pick(1, 2, 2, 3)
    group = b.pick(1, 1, 1, 2, 3)
    per_in, per_out = b.between(1, 3), b.between(1, 3)
    depthwise = b.chance(0.15)
    if depthwise:
        per_in, per_out = 1, 1
    kernel = [b.between(1, 3) for _ in range(rank)]
    space = b.dims(rank, 5, 8)
    batch = b.dim(1, 3)
    channels, outs = group * per_in, group * per_out
    attributes = {}
    if group > 1 or b.chance(0.2):
        attributes["group"] = group
    if b.chance(0.7):
        attributes["kernel_shape"] = kernel
    window(b, rank, kernel, attributes, space)
    if name == "ConvTranspose":
        weights = (channels, per_out, *kernel)
        strides = attributes.get("strides", [1] * rank)
        dilations = attributes.get("dilations", [1] * rank)
        if b.chance(0.35):
            limits = [max(stride, dilation) - 1 for stride, dilation in zip(strides, dilations)]
            attributes["output_padding"] = [b.between(0, limit) for limit in limits]
        if b.chance(0.1) and all(dim.is_constant for dim in space) and "pads" not in attributes:
            attributes["output_shape"] = [
                stride * dim.sizes[0] + b.between(0, 1) for stride, dim in zip(strides, space)
            ]
    else:
        weights = (outs, per_in, *kernel)
    shape = [batch, Dim(channels), *space]
    note(b, name, rank, attributes)
    if name in ("Conv", "ConvTranspose"):
        dtype = b.pick("float32", "float32", "float32", "float64", "float16")
        half(b, dtype)
        if dtype != "float32":
            note(b, dtype)
        kind = b.pick("normal", "grid")
        names = [b.input(dtype, shape, kind=kind)]
        names.append(
            b.weights(dtype, weights, kind) if b.chance(0.7) else b.input(dtype, fixed(*weights), kind=kind)
        )
        if b.chance(0.5):
            names.append(b.weights(dtype, (outs,), kind) if b.chance(0.7) else b.input(dtype, fixed(outs), kind=kind))
        b.output(b.node(name, names, **attributes))
        return
    left, right = b.pick("uint8", "uint8", "int8"), b.pick("uint8", "int8")
    note(b, left, right)
    x, w = b.input(left, shape, kind="any"), b.weights(right, weights, "any")
    zero = lambda dtype: b.stored(np.array(b.between(0, 5), dtype))  # noqa: E731
    if name == "ConvInteger":
        names = [x, w, zero(left) if b.chance(0.6) else "", zero(right) if b.chance(0.6) else ""]
        b.output(b.node(name, names, **attributes))
        return
    scale = lambda value: b.stored(np.array(value, np.float32))  # noqa: E731
    if b.chance(0.5):
        scales = b.stored(np.array([b.pick(0.25, 0.2, 0.5) for _ in range(outs)], np.float32))
        zeros = b.stored(np.zeros(outs, right))
    else:
        scales, zeros = scale(0.25), zero(right)
    names = [x, scale(0.5), zero(left), w, scales, zeros, scale(b.pick(16.0, 7.3)), zero(left)]
    if b.chance(0.5):
        names.append(b.weights("int32", (outs,), "any"))
    b.output(b.node(name, names, **attributes))


@case(6)
def pool(b):
    name = b.pick("MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
    rank = b.pick(1, 2, 2, 3)
    dtype = float_dtype(b)
    shape = [b.dim(1, 2), b.dim(1, 3), *b.dims(rank, 4, 8)]
    kind = b.pick("normal", "wide", "very negative") if name != "MaxPool" else b.pick("normal", "very negative", "extreme")
    if name.startswith("Global"):
        attributes = {"p": b.pick(1, 2, 3)} if name == "GlobalLpPool" else {}
        note(b, name, dtype, rank, attributes)
        b.output(b.node(name, [b.input(dtype, shape, kind=kind)], **attributes))
        return
    kernel = [b.between(1, 3) for _ in range(rank)]
    attributes = {"kernel_shape": kernel}
    window(b, rank, kernel, attributes, shape)
    padding = attributes.get("auto_pad", "")
    if padding.startswith("SAME") and "strides" in attributes:
        # A window smaller than its stride would need padding below zero, of which there is none:
        # ONNX Runtime refuses it, the reference cuts off where the standard does not say.
        spread = zip(kernel, attributes.get("dilations", [1] * rank))
        spread = [(size - 1) * step + 1 for size, step in spread]
        attributes["strides"] = [min(pair) for pair in zip(attributes["strides"], spread)]
    if padding.startswith("SAME") and name == "MaxPool":
        # The text gives ceil(in / stride) places, the reference and ONNX Runtime fewer, and not the same.
        attributes.pop("dilations", None)
    # With VALID the text gives ceil((in - window + 1) / stride), ONNX Runtime one more of it.
    if b.chance(0.35) and padding != "VALID":
        attributes["ceil_mode"] = b.pick(0, 1)
    if name == "LpPool":
        b.opset = max(b.opset, 18)
        attributes["p"] = b.pick(1, 2, 3)
    if name == "AveragePool":
        if b.chance(0.5):
            attributes["count_include_pad"] = b.pick(0, 1)
        if "dilations" in attributes:
            b.opset = max(b.opset, 19)
    outputs = 1
    if name == "MaxPool" and b.chance(0.3):
        outputs = 2
        if b.chance(0.3):
            attributes["storage_order"] = 1
        kind = "normal"
    if name == "MaxPool" and dtype == "float32" and b.opset >= 12 and b.chance(0.1):
        dtype, kind = b.pick("int8", "uint8"), None
    note(b, name, dtype, kind, rank, attributes, outputs)
    made = b.node(name, [b.input(dtype, shape, kind=kind)], outputs, **attributes)
    b.output(*([made] if outputs == 1 else made))


# ---- shapes and places ----


@case(7)
def resize(b):
    b.opset = max(b.opset, 13)
    rank = b.pick(2, 3, 4, 4)
    mode = b.pick("nearest", "linear", "cubic")
    if mode == "cubic":
        rank = 4
    dtype = b.pick("float32", "float32", "float32", "uint8", "float16")
    if mode != "nearest" and dtype != "float32":
        dtype = "float32"
    half(b, dtype)
    frames = rank - (b.between(1, 2) if rank > 2 else 1)
    dims = fixed(*[b.between(1, 2) for _ in range(frames)]) + b.dims(rank - frames, 2, 6)
    attributes = {"mode": mode}
    transformations = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "tf_crop_and_resize"]
    if b.opset >= 19:
        transformations.append("half_pixel_symmetric")
    attributes["coordinate_transformation_mode"] = b.pick(*transformations)
    if mode == "nearest":
        attributes["nearest_mode"] = b.pick("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    if mode == "cubic" and b.chance(0.5):
        attributes["cubic_coeff_a"] = b.pick(-0.5, -0.75)
        attributes["exclude_outside"] = b.pick(0, 1)
    if mode != "nearest" and b.opset >= 18 and b.chance(0.3):
        attributes["antialias"] = 1
    region = ""
    if attributes["coordinate_transformation_mode"] == "tf_crop_and_resize":
        region = b.stored(np.array([0.0] * frames + [0.25] * (rank - frames) + [1.0] * frames + [0.75] * (rank - frames), np.float32))
        attributes["extrapolation_value"] = b.pick(0.0, 3.0)
    x = b.input(dtype, dims)
    if b.chance(0.5):
        # Scales whose products are whole or not.
        scales = [1.0] * frames + [b.pick(0.5, 2.0, 1.5, 0.6, 3.0, 0.8, 1.0) for _ in range(rank - frames)]
        note(b, "scales", scales[frames:], attributes)
        names = [x, region, b.given(np.array(scales, np.float32))]
    else:
        sizes = [dim.sizes[0] for dim in dims[:frames]] + [b.between(1, 9) for _ in range(rank - frames)]
        note(b, "sizes", attributes)
        names = [x, region, "", b.given(np.array(sizes, np.int64))]
    b.output(b.node("Resize", names, **attributes))


@case(5)
def pad(b):
    dtype = number_dtype(b)
    b.opset = max(b.opset, 13)
    rank = b.between(1, 4)
    mode = b.pick("constant", "reflect", "edge", "wrap")
    if mode == "wrap":
        b.opset = max(b.opset, 19)
    axes = list(range(rank))
    names = [b.input(dtype, b.dims(rank, 3, 5))]
    if b.opset >= 18 and b.chance(0.4):
        axes = [int(axis) for axis in b.rng.permutation(rank)[: b.between(1, rank)]]
    low = -1 if b.chance(0.3) else 0
    pads = [b.between(low, 2) for _ in range(2 * len(axes))]
    names.append(b.given(np.array(pads, np.int64)))
    fill = b.given(np.array(b.between(0, 3), dtype)) if mode == "constant" and b.chance(0.6) else ""
    names.append(fill)
    if axes != list(range(rank)):
        axes = [axis - rank if b.chance(0.3) else axis for axis in axes]
        names.append(b.given(np.array(axes, b.pick("int64", "int32"))))
    note(b, mode, dtype, "negative" if min(pads) < 0 else "")
    b.output(b.node("Pad", names, mode=mode))


@case(5)
def slices(b):
    dtype = b.pick("float32", "int64", "int32", "uint8", "bool")
    rank = b.between(1, 4)
    dims = b.dims(rank, 1, 6)
    axes = [int(axis) for axis in b.rng.permutation(rank)[: b.between(1, rank)]]
    starts, ends, steps = [], [], []
    for _ in axes:
        starts.append(b.pick(0, 1, 2, -1, -2, -3, 10, -10, 0, 1))
        ends.append(b.pick(3, 2, -1, 100, 2**31 - 1, 2**63 - 1, -100, -(2**63), 4, 5))
        steps.append(b.pick(1, 1, 1, 2, -1, -2, 3))
    kind = b.pick("int64", "int64", "int32")
    if kind == "int32":
        ends = [max(min(end, 2**31 - 1), -(2**31)) for end in ends]
    names = [b.input(dtype, dims), b.given(np.array(starts, kind)), b.given(np.array(ends, kind))]
    ordered = axes == list(range(len(axes)))
    if not ordered or b.chance(0.7) or any(step != 1 for step in steps):
        axes = [axis - rank if b.chance(0.3) else axis for axis in axes]
        names.append(b.given(np.array(axes, kind)))
        if any(step != 1 for step in steps) or b.chance(0.3):
            names.append(b.given(np.array(steps, kind)))
    else:
        steps = [1] * len(steps)
    note(b, dtype, starts, ends, steps)
    b.output(b.node("Slice", names))


def indices(b, limit, dims, negative=True):
    """Indices into an axis that has that many places at least."""
    low = -limit if negative and b.chance(0.5) else 0
    values = lambda rng, shape, _: rng.integers(low, limit, shape)  # noqa: E731
    dtype = b.pick("int64", "int64", "int32")
    if b.chance(0.3) and all(dim.is_constant and not dim.name for dim in dims):
        return b.stored(values(b.rng, tuple(dim.sizes[0] for dim in dims), 0), dtype)
    return b.input(dtype, dims, values)


@case(6)
def gather(b):
    name = b.pick("Gather", "GatherElements", "GatherND")
    dtype = b.pick("float32", "int64", "uint8", "bool", "float16")
    b.opset = max(b.opset, 13)
    rank = b.between(1, 4)
    dims = b.dims(rank, 1, 4)
    axis = b.axis(rank)
    note(b, name, dtype)
    if name == "Gather":
        found = indices(b, min(dims[axis].sizes), b.dims(b.between(0, 2), 1, 4))
        b.output(b.node(name, [operand(b, dtype, dims), found], axis=axis))
    elif name == "GatherElements":
        # No larger than the data on the other axes.
        shape = [b.dim(1, 4) if place == axis % rank else dim for place, dim in enumerate(dims)]
        found = indices(b, min(dims[axis].sizes), shape)
        b.output(b.node(name, [b.input(dtype, dims), found], axis=axis))
    else:
        batch = b.between(0, rank - 1) if b.chance(0.3) else 0
        depth = b.between(1, rank - batch)
        limits = [min(dim.sizes) for dim in dims[batch : batch + depth]]
        note(b, f"batch {batch}", f"depth {depth}")
        negative = b.chance(0.5)
        make = lambda rng, shape, _: np.stack(  # noqa: E731
            [rng.integers(-limit if negative else 0, limit, shape[:-1]) for limit in limits], -1
        )
        shape = dims[:batch] + b.dims(b.between(0, 2), 1, 4) + fixed(depth)
        b.output(b.node(name, [b.input(dtype, dims), b.input("int64", shape, make)], batch_dims=batch or None))


@case(5)
def scatter(b):
    name = b.pick("ScatterElements", "ScatterND")
    dtype = b.pick("float32", "int64", "int32", "float16")
    half(b, dtype)
    reduction = b.pick("none", "none", "add", "mul", "max", "min")
    if reduction != "none":
        b.opset = max(b.opset, 18)
    rank = b.between(1, 3)
    dims = b.dims(rank, 2, 5, 0.2)
    negative = b.chance(0.5)
    note(b, name, dtype, reduction, "negative" if negative else "")
    attributes = {} if reduction == "none" else {"reduction": reduction}
    if name == "ScatterElements":
        axis = b.axis(rank)
        limit = min(dims[axis].sizes)
        count = b.between(1, limit)
        shape = [Dim(count) if place == axis % rank else dim for place, dim in enumerate(dims)]

        def make(rng, shape, _):
            # Each place once, if what is there is replaced.
            rows = np.moveaxis(np.empty(shape, np.int64), axis, -1)
            flat = rows.reshape(-1, rows.shape[-1])
            for row in flat:
                row[:] = rng.permutation(limit)[: rows.shape[-1]] if reduction == "none" else rng.integers(0, limit, rows.shape[-1])
            made = np.moveaxis(flat.reshape(rows.shape), -1, axis)
            return made - limit * (rng.random(made.shape) < 0.5) if negative and dims[axis].is_constant else made

        found = b.input(b.pick("int64", "int32"), shape, make)
        names = [b.input(dtype, dims), found, b.input(dtype, shape)]
        b.output(b.node(name, names, axis=axis, **attributes))
        return
    depth = b.between(1, rank)
    count = b.between(1, min(2, min(min(dim.sizes) for dim in dims)))

    def places(rng, shape, _):
        columns = [rng.permutation(min(dim.sizes))[:count] for dim in dims[:depth]]
        made = np.stack(columns, -1)
        if negative:
            made = made - np.array([dim.sizes[0] for dim in dims[:depth]]) * (rng.random(made.shape) < 0.5)
        return made

    if negative and not all(dim.is_constant for dim in dims[:depth]):
        raise Skip("sizes differ")
    names = [b.input(dtype, dims), b.input("int64", fixed(count, depth), places)]
    names.append(b.input(dtype, fixed(count) + dims[depth:]))
    b.output(b.node(name, names, **attributes))


@case(9)
def move(b):
    name = b.pick("Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Expand", "Tile", "Concat", "Split", "Shape", "Size")
    dtype = b.pick("float32", "int64", "int32", "uint8", "bool", "float64")
    b.opset = max(b.opset, 13)
    rank = b.between(1, 4)
    dims = b.dims(rank, 1, 4)
    note(b, name, dtype)
    x = None if name in ("Squeeze", "Expand", "Concat", "Split") else b.input(dtype, dims)
    if name == "Transpose":
        order = [int(axis) for axis in b.rng.permutation(rank)] if b.chance(0.8) else None
        b.output(b.node(name, [x], perm=order))
    elif name == "Reshape":
        keep = b.between(0, rank)
        target = [0 if b.chance(0.5) else None for _ in range(keep)]
        whole = [b.pick(0, dim.sizes[0]) if dim.is_constant and entry != 0 else 0 for entry, dim in zip(target, dims)]
        shape = whole + ([-1] if keep < rank or b.chance(0.5) else [])
        if b.chance(0.3):
            shape.insert(b.between(keep, len(shape)), 1)
        note(b, shape)
        b.output(b.node(name, [x, b.given(np.array(shape, np.int64))]))
    elif name == "Squeeze":
        dims = [Dim(1) if b.chance(0.5) else dim for dim in dims]
        ones = [place for place, dim in enumerate(dims) if dim.is_one and not dim.name]
        x = b.input(dtype, dims)
        if not ones or (b.chance(0.3) and all(min(dim.sizes) > 1 or not dim.name for dim in dims)):
            b.output(b.node(name, [x]))
        else:
            axes = [axis - rank if b.chance(0.3) else axis for axis in ones[: b.between(1, len(ones))]]
            b.output(b.node(name, [x, b.given(np.array(axes, np.int64))]))
    elif name == "Unsqueeze":
        count = b.between(1, 2)
        axes = [int(axis) for axis in b.rng.permutation(rank + count)[:count]]
        axes = [axis - rank - count if b.chance(0.3) else axis for axis in axes]
        b.output(b.node(name, [x, b.given(np.array(axes, np.int64))]))
    elif name == "Flatten":
        b.output(b.node(name, [x], axis=b.pick(None, b.between(-rank, rank))))
    elif name == "Expand":
        small, large = broadcast_dims(b, 2)
        note(b, len(small), len(large))
        b.output(b.node(name, [b.input(dtype, small), b.shape_of(large)]))
    elif name == "Tile":
        b.output(b.node(name, [x, b.given(np.array([b.between(1, 3) for _ in dims], np.int64))]))
    elif name == "Concat":
        axis = b.axis(rank)
        names = []
        for _ in range(b.between(1, 3)):
            part = list(dims)
            part[axis] = b.dim(1, 4)
            names.append(operand(b, dtype, part))
        b.output(b.node(name, names, axis=axis))
    elif name == "Split":
        split(b, dtype, dims)
    else:
        attributes = {}
        if name == "Shape" and b.opset >= 15 and b.chance(0.6):
            attributes = {"start": b.between(-rank, rank), "end": b.between(-rank, rank + 1)}
        b.output(b.node(name, [x], **attributes))


def split(b, dtype, dims):
    rank = len(dims)
    axis = b.axis(rank)
    count = b.between(1, 3)
    if b.opset >= 18 and b.chance(0.4):
        dims[axis] = Dim(b.between(count, 3 * count))
        size = dims[axis].sizes[0]
        if -(-size // count) * (count - 1) >= size:
            raise Skip("an empty part")
        b.output(*listed(b.node("Split", [b.input(dtype, dims)], count, axis=axis, num_outputs=count)))
        return
    if b.chance(0.3) and b.opset < 18:
        dims[axis] = Dim(count * b.between(1, 3))
        b.output(*listed(b.node("Split", [b.input(dtype, dims)], count, axis=axis)))
        return
    parts = [b.between(0 if b.chance(0.1) else 1, 3) for _ in range(count)]
    dims[axis] = Dim(sum(parts))
    names = [b.input(dtype, dims), b.given(np.array(parts, np.int64))]
    b.output(*listed(b.node("Split", names, count, axis=axis)))


def listed(made):
    return [made] if isinstance(made, str) else made


@case(3)
def make(b):
    name = b.pick("ConstantOfShape", "Range", "EyeLike", "OneHot", "Trilu", "NonZero", "Compress")
    b.opset = max(b.opset, 14)
    dims = b.dims(b.between(1, 3), 1, 4)
    note(b, name)
    if name == "ConstantOfShape":
        value = None
        if b.chance(0.7):
            dtype = b.pick("float32", "int64", "bool", "int32", "float16", "uint8", "float64")
            value = helper.make_tensor("v", CODES[dtype], [1], [b.between(0, 1)])
        b.output(b.node(name, [b.shape_of(dims, 0.4)], value=value))
    elif name == "Range":
        dtype = b.pick("float32", "int64", "int32", "int16", "float64")
        step = b.pick(1, 2, -1, 3, -2) if not dtype.startswith("f") else b.pick(0.5, 1.0, -0.25, 1.5)
        start = b.between(-3, 3)
        stop = start + step * b.between(0, 6) + b.pick(0, 1) * step / 2
        b.output(b.node(name, [b.given(np.array(value).astype(dtype), 0.3) for value in (start, stop, step)]))
    elif name == "EyeLike":
        dtype = b.pick("float32", "int64", "int32")
        b.output(b.node(name, [b.input(dtype, b.dims(2, 1, 5))], k=b.pick(None, 1, -1, 2), dtype=b.pick(None, 1, 7)))
    elif name == "OneHot":
        depth = b.between(1, 5)
        kind = b.pick("int64", "int32", "float32")
        values = lambda rng, shape, _: rng.integers(-depth, depth, shape)  # noqa: E731
        x = b.input(kind, dims, values)
        dtype = b.pick("float32", "int64", "int32", "float32")
        fills = b.given(np.array([b.between(0, 1), b.between(2, 5)], dtype))
        b.output(b.node(name, [x, b.given(np.array(depth, b.pick("int64", "int32"))), fills], axis=b.pick(None, b.axis(len(dims) + 1))))
    elif name == "Trilu":
        dtype = b.pick("float32", "int64", "bool", "float64", "int32")
        names = [b.input(dtype, b.dims(b.between(2, 4), 1, 5))]
        if b.chance(0.6):
            names.append(b.given(np.array(b.between(-3, 3), np.int64)))
        b.output(b.node(name, names, upper=b.pick(None, 0, 1)))
    elif name == "NonZero":
        b.output(b.node(name, [b.input(b.pick("float32", "int64", "bool"), dims, kind=None)]))
    else:
        axis = b.axis(len(dims))
        flags = b.input("bool", [Dim(min(dims[axis].sizes))])
        b.output(b.node(name, [b.input("float32", dims), flags], axis=axis))


@case(3)
def topk(b):
    dtype = b.pick("float32", "float64", "int64", "int32", "float16")
    rank = b.between(1, 3)
    axis = b.axis(rank)
    dims = b.dims(rank, 2, 6)
    count = b.between(1, min(dims[axis].sizes))
    kind = b.pick("normal", "ones") if dtype in FLOATS else None
    attributes = {"axis": axis, "largest": b.pick(0, 1), "sorted": 1}
    note(b, dtype, kind, attributes)
    b.output(*b.node("TopK", [b.input(dtype, dims, kind=kind), b.given(np.array([count], np.int64))], 2, **attributes))


@case(2)
def blocks(b):
    name = b.pick("DepthToSpace", "SpaceToDepth")
    size = b.between(1, 3)
    b.opset = max(b.opset, 13)
    attributes = {"blocksize": size}
    if name == "DepthToSpace":
        dims = [b.dim(1, 2), Dim(size * size * b.between(1, 3)), b.dim(1, 4), b.dim(1, 4)]
        attributes["mode"] = b.pick("DCR", "CRD")
    else:
        dims = [b.dim(1, 2), b.dim(1, 3), Dim(size * b.between(1, 3)), Dim(size * b.between(1, 3))]
    note(b, name, attributes)
    b.output(b.node(name, [b.input("float32", dims)], **attributes))


@case(3)
def grid_sample(b):
    b.opset = max(b.opset, 16)
    rank = b.pick(2, 2, 2, 3) if b.opset >= 20 else 2
    modes = ("nearest", "linear") if rank == 3 else ("nearest", "linear", "cubic")
    mode = b.pick(*modes)
    if b.opset < 20:
        mode = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    attributes = {"mode": mode, "padding_mode": b.pick("zeros", "border", "reflection"), "align_corners": b.pick(0, 1)}
    batch = b.dim(1, 2)
    note(b, rank, attributes)
    x = b.input("float32", [batch, b.dim(1, 2), *b.dims(rank, 2, 5)])
    grid = b.input("float32", [batch, *b.dims(rank, 1, 4), Dim(rank)], kind=b.pick("unit", "normal"))
    b.check_stability = True
    b.output(b.node("GridSample", [x, grid], **attributes))


@case(2)
def suppression(b):
    count, classes, batch = b.dim(1, 8), b.dim(1, 2), b.dim(1, 2)
    centre = b.pick(0, 1)

    def boxes(rng, shape, _):
        corners = rng.random((*shape[:-1], 2))
        sizes = rng.random((*shape[:-1], 2)) * 0.7 + 0.05
        return np.concatenate([corners, sizes if centre else corners + sizes], -1)

    names = [
        b.input("float32", [batch, count, Dim(4)], boxes),
        b.input("float32", [batch, classes, count], kind="probability"),
        b.given(np.array([b.between(1, 4)], np.int64)),
    ]
    if b.chance(0.8):
        names.append(b.given(np.array([b.pick(0.3, 0.5, 0.7)], np.float32)))
        if b.chance(0.8):
            names.append(b.given(np.array([b.pick(0.0, 0.3, 0.5)], np.float32)))
    note(b, f"center {centre}", len(names))
    b.output(b.node("NonMaxSuppression", names, center_point_box=centre))


# ---- normalisation ----


@case(6)
def normalization(b):
    name = b.pick(
        "BatchNormalization", "InstanceNormalization", "LayerNormalization", "GroupNormalization", "LpNormalization",
        "MeanVarianceNormalization", "LRN", "RMSNormalization",
    )
    dtype = b.pick("float32", "float32", "float32", "float16")
    half(b, dtype)
    rank = b.between(2, 4)
    dims = b.dims(rank, 1, 5)
    dims[1] = Dim(b.between(1, 4))
    channels = dims[1].sizes[0]
    kind = b.pick("normal", "wide", "tiny")
    attributes = {"epsilon": b.pick(1e-5, 1e-3)} if b.chance(0.5) else {}
    note(b, name, dtype, kind)
    if name == "BatchNormalization":
        b.opset = max(b.opset, 14)
        parts = [b.weights(dtype, (channels,)) for _ in range(3)] + [b.weights(dtype, (channels,), "positive")]
        b.output(b.node(name, [b.input(dtype, dims, kind=kind), *parts], **attributes))
    elif name == "InstanceNormalization":
        dims = dims if rank > 2 else dims + [b.dim(1, 5)]
        parts = [b.weights(dtype, (channels,)) for _ in range(2)]
        b.output(b.node(name, [b.input(dtype, dims, kind=kind), *parts], **attributes))
    elif name in ("LayerNormalization", "RMSNormalization"):
        b.opset = max(b.opset, 17 if name == "LayerNormalization" else 23)
        axis = b.axis(rank)
        shape = dims[axis % rank :]
        if not all(dim.is_constant for dim in shape):
            shape = [Dim(dim.sizes[0]) for dim in shape]
            dims = dims[: axis % rank] + shape
        parts = [b.weights(dtype, [dim.sizes[0] for dim in shape]) for _ in range(b.pick(1, 2) if name[0] == "L" else 1)]
        outputs = b.pick(1, 1, 3) if name[0] == "L" else 1
        made = b.node(name, [b.input(dtype, dims, kind=kind), *parts], outputs, axis=axis, **attributes)
        b.output(*listed(made))
    elif name == "GroupNormalization":
        b.opset = max(b.opset, 18)
        groups = b.between(1, 3)
        channels = groups * b.between(1, 3)
        dims[1] = Dim(channels)
        dims = dims if rank > 2 else dims + [b.dim(1, 5)]
        parts = [b.weights(dtype, (channels if b.opset >= 21 else groups,)) for _ in range(2)]
        b.output(b.node(name, [b.input(dtype, dims, kind=kind), *parts], num_groups=groups, **attributes))
    elif name == "LpNormalization":
        b.output(b.node(name, [b.input(dtype, dims, kind="normal")], axis=b.axis(rank), p=b.pick(1, 2)))
    elif name == "MeanVarianceNormalization":
        dims = b.dims(4, 2, 4)
        axes = b.pick(None, [0, 2, 3], [2, 3], [1], [-1])
        b.opset = max(b.opset, 13)
        b.output(b.node(name, [b.input("float32", dims, kind="normal")], axes=axes))
    else:
        dims = b.dims(4, 1, 5)
        b.output(b.node(name, [b.input("float32", dims)], size=b.pick(1, 3, 5), alpha=b.pick(None, 0.01), beta=b.pick(None, 0.5), bias=b.pick(None, 2.0)))


# ---- quantization ----


@case(5)
def quantize(b):
    name = b.pick("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")
    b.opset = max(b.opset, 13)
    rank = b.between(1, 4)
    dims = b.dims(rank, 1, 5)
    if name == "DynamicQuantizeLinear":
        note(b, name)
        b.output(*b.node(name, [b.input("float32", dims, kind=b.pick("normal", "grid", "wide", "positive"))], 3))
        return
    dtype = b.pick("uint8", "int8") if name[0] == "Q" else b.pick("uint8", "int8", "int32")
    if b.opset >= 21 and b.chance(0.2):
        dtype = b.pick("int16", "uint16")
    axis = None
    scale = b.pick(0.25, 0.5, 0.1, 2.0)
    if b.chance(0.5):
        axis = b.axis(rank)
        size = dims[axis].sizes[0]
        dims[axis] = Dim(size)
        scales = np.array([scale * b.pick(1, 0.5, 3) for _ in range(size)], np.float32)
        zeros = b.values(dtype, "bits" if name[0] == "Q" else "small")(b.rng, (size,), 0)
    else:
        scales = np.array(scale, np.float32)
        zeros = np.array(b.between(0, 7), dtype)
    if dtype == "int32":
        zeros = np.zeros_like(zeros)
    kind = b.pick("normal", "grid", "wide", "large") if name[0] == "Q" else "any"
    note(b, name, dtype, f"axis {axis}", kind)
    x = b.input("float32" if name[0] == "Q" else dtype, dims, kind=kind)
    names = [x, b.given(scales)]
    if b.chance(0.85) or dtype not in ("uint8",):
        names.append(b.given(zeros.astype(dtype)))
    b.output(b.node(name, names, axis=axis))


# ---- recurrences and subgraphs ----


@case(4)
def recurrent(b):
    name = b.pick("LSTM", "GRU", "RNN")
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[name]
    b.opset = max(b.opset, 14)
    direction = b.pick("forward", "forward", "reverse", "bidirectional")
    count = 2 if direction == "bidirectional" else 1
    hidden, size = b.between(1, 4), b.between(1, 4)
    length, batch = b.dim(1, 4), b.dim(1, 3)
    # Only the reference has recurrences of float64, and not all of them.
    dtype = b.pick("float32", "float32", "float64")
    simple = dtype == "float64"
    if simple:
        # Answers by way of float32 are no answers.
        b.rtol, b.atol = 1e-9, 1e-12
    x = b.input(dtype, [length, batch, Dim(size)], kind="normal")
    names = [x, b.weights(dtype, (count, gates * hidden, size), "unit"), b.weights(dtype, (count, gates * hidden, hidden), "unit")]
    names.append(b.weights(dtype, (count, 2 * gates * hidden), "unit") if b.chance(0.6) else "")
    lengths = b.chance(0.25) and not simple
    if lengths:
        names.append(b.input("int32", [batch], lambda rng, shape, _: rng.integers(1, min(length.sizes) + 1, shape)))
    else:
        names.append("")
    if b.chance(0.4):
        names.append(b.input(dtype, [Dim(count), batch, Dim(hidden)], kind="unit"))
        if name == "LSTM":
            names.append(b.input(dtype, [Dim(count), batch, Dim(hidden)], kind="unit"))
    elif name == "LSTM" and b.chance(0.3):
        names += ["", "", b.weights(dtype, (count, 3 * hidden), "unit")]
    attributes = {"hidden_size": hidden, "direction": direction}
    if name == "GRU":
        attributes["linear_before_reset"] = b.pick(0, 1)
    if b.chance(0.2) and not simple:
        acts = {"LSTM": ["Sigmoid", "Tanh", "Relu"], "GRU": ["HardSigmoid", "Tanh"], "RNN": ["Relu"]}[name]
        attributes["activations"] = acts * count
    if b.chance(0.15) and not simple:
        attributes["clip"] = 0.5
    note(b, name, dtype, direction, "lengths" if lengths else "", *[key for key in ("activations", "clip") if key in attributes])
    outputs = ["y", "y_h", "y_c"][: 3 if name == "LSTM" else 2]
    kept = [output if b.chance(0.7) else "" for output in outputs]
    if not any(kept):
        kept = outputs
    b.nodes.append(helper.make_node(name, trimmed(names), kept, name="recurrence", **attributes))
    b.output(*kept)


def trimmed(names):
    names = list(names)
    while names and not names[-1]:
        names.pop()
    return names


def info(name, dtype, shape):
    return helper.make_tensor_value_info(name, CODES[dtype], shape)


@case(2)
def subgraph(b):
    kind = b.pick("Scan", "Loop", "If")
    b.opset = max(b.opset, 13)
    size, length = b.between(1, 4), b.dim(1, 4)
    note(b, kind)
    if kind == "Scan":
        reverse = b.pick(0, 1)
        body = helper.make_graph(
            [helper.make_node("Add", ["s", "x"], ["n"]), helper.make_node("Mul", ["n", "x"], ["y"]), helper.make_node("Identity", ["n"], ["o"])],
            "body", [info("s", "float32", [size]), info("x", "float32", [size])], [info("o", "float32", [size]), info("y", "float32", [size])],
        )
        names = [b.input("float32", fixed(size), kind="normal"), b.input("float32", [length, Dim(size)], kind="normal")]
        directions = {"scan_input_directions": [reverse], "scan_output_directions": [b.pick(0, 1)]} if b.chance(0.5) else {}
        b.output(*b.node("Scan", names, 2, body=body, num_scan_inputs=1, **directions))
    elif kind == "Loop":
        body = helper.make_graph(
            [helper.make_node("Add", ["s", "s"], ["o"]), helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Identity", ["s"], ["y"])],
            "body", [info("i", "int64", []), info("c", "bool", []), info("s", "float32", [size])],
            [info("d", "bool", []), info("o", "float32", [size]), info("y", "float32", [size])],
        )
        names = [b.given(np.array(b.between(1, 4), np.int64)), b.stored(np.array(True)), b.input("float32", fixed(size), kind="normal")]
        b.output(*b.node("Loop", names, 2, body=body))
    else:
        x = b.input("float32", [length, Dim(size)], kind="normal")
        shape = [length.name or length.sizes[0], size]
        graphs = [
            helper.make_graph([helper.make_node(operator, [x, x], [f"{operator}_y"])], operator, [], [info(f"{operator}_y", "float32", shape)])
            for operator in ("Add", "Mul")
        ]
        condition = b.input("bool", b.pick([], fixed(1)))
        b.output(b.node("If", [condition], then_branch=graphs[0], else_branch=graphs[1]))


# ---- operators of com.microsoft ----


@case(2)
def contrib(b):
    name = b.pick("Gelu", "FastGelu", "QuickGelu", "BiasGelu", "SkipLayerNormalization", "SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization")
    b.opset = max(b.opset, 17)
    hidden = b.between(1, 8)
    dims = [b.dim(1, 3), b.dim(1, 4), Dim(hidden)]
    kind = b.pick("normal", "wide", "very negative", "tiny")
    note(b, name, kind)
    x = b.input("float32", dims, kind=kind)
    if name in ("Gelu", "QuickGelu", "FastGelu"):
        names = [x]
        if name == "FastGelu" and b.chance(0.5):
            names.append(b.weights("float32", (hidden,)))
        attributes = {"alpha": b.pick(1.702, 1.0)} if name == "QuickGelu" and b.chance(0.5) else {}
        b.output(b.node(name, names, domain="com.microsoft", **attributes))
    elif name == "BiasGelu":
        b.output(b.node(name, [x, b.weights("float32", (hidden,))], domain="com.microsoft"))
    elif name == "SimplifiedLayerNormalization":
        b.output(b.node(name, [x, b.weights("float32", (hidden,))], axis=-1, epsilon=1e-5))
    else:
        names = [x, b.input("float32", dims, kind="normal"), b.weights("float32", (hidden,))]
        if name == "SkipLayerNormalization" and b.chance(0.6):
            names.append(b.weights("float32", (hidden,)))
        b.output(b.node(name, names, domain="com.microsoft", epsilon=b.pick(1e-5, 1e-12)))


@case(1)
def large(b):
    """Sizes beyond 32 bits in what is never held whole: only their shapes, products with nothing."""
    b.opset = max(b.opset, 13)
    name = b.pick("ConstantOfShape", "Expand", "Tile")
    sizes = [0, 2**32 + b.between(0, 5)]
    if b.chance(0.5):
        sizes.reverse()
    note(b, name, sizes)
    if name == "ConstantOfShape":
        made = b.node(name, [b.given(np.array(sizes, np.int64))])
    else:
        x = b.input("float32", fixed(*[0 if size == 0 else 1 for size in sizes]))
        made = b.node(name, [x, b.given(np.array([1 if size == 0 else size for size in sizes], np.int64))])
    b.output(b.node("Shape", [made]))


@case(2)
def attention(b):
    b.opset = 23
    heads = b.pick(1, 2)
    batch, queries, keys = b.dim(1, 2), b.dim(1, 4), b.dim(1, 5)
    depth = b.between(1, 4)
    names = [
        b.input("float32", [batch, Dim(heads), queries, Dim(depth)], kind="normal"),
        b.input("float32", [batch, Dim(heads), keys, Dim(depth)], kind="normal"),
        b.input("float32", [batch, Dim(heads), keys, Dim(depth)], kind="normal"),
    ]
    if b.chance(0.5):
        names.append(b.input(b.pick("float32", "bool"), [queries, keys], kind=None))
    attributes = {"is_causal": 1} if b.chance(0.3) else {}
    if b.chance(0.3):
        attributes["scale"] = 0.5
    if b.chance(0.2):
        attributes["softcap"] = 2.0
    note(b, attributes, len(names))
    b.output(b.node("Attention", names, **attributes))


assert SETS == 3 and TensorProto.FLOAT == 1
