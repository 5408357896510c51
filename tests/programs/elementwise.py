"""Programs without a delegate: operators that work on every element by itself."""

import torch
from harness import Method, Ops, Program, forward, program, skipped
from torch.nn import functional as F

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")

skipped(
    "signbit, a << b, a >> b", "no kernel (bitwise_left_shift and bitwise_right_shift have one)"
)
skipped("rand, randn, native_dropout", "what they answer is chance")


def portable(operators, *cases, **rest):
    """A program without a delegate whose outputs are these operators of its inputs."""
    return forward("portable", Ops(operators), *cases, **rest)


def noise(*shape):
    """Random values."""
    return torch.randn(*shape)


def integers(low, high, *shape, dtype=torch.int64):
    """Random whole numbers, `high` excluded."""
    return torch.randint(low, high, shape, dtype=dtype)


@program
def arithmetic():
    operators = {
        "add": torch.add,
        "add_alpha": lambda a, b: torch.add(a, b, alpha=2.5),
        "sub": torch.sub,
        "sub_alpha": lambda a, b: torch.sub(a, b, alpha=-3),
        "mul": torch.mul,
        "div": torch.div,
        "minimum": torch.minimum,
        "maximum": torch.maximum,
        "reversed": lambda a, b: b - a,
    }
    return portable(operators, (noise(2, 3, 4), noise(2, 3, 4)))


@program
def arithmetic_broadcast():
    operators = {
        "row": lambda a, b, c, d: a + b,
        "column": lambda a, b, c, d: a * c,
        "outer": lambda a, b, c, d: b - c,
        "higher": lambda a, b, c, d: a / (d + 3),
        "scalar": lambda a, b, c, d: a * b.sum(),
        "alpha": lambda a, b, c, d: torch.add(c, d, alpha=0.5),
        "least": lambda a, b, c, d: torch.minimum(a, d),
        "where": lambda a, b, c, d: torch.where(c > 0, b, d),
        "compare": lambda a, b, c, d: b < c,
    }
    return portable(operators, (noise(2, 3, 4), noise(4), noise(2, 3, 1), noise(1, 1, 1, 4).abs()))


@program
def arithmetic_scalars():
    operators = {
        "add": lambda x: x + 1.5,
        "sub": lambda x: x - 2,
        "rsub": lambda x: 1 - x,
        "mul": lambda x: x * -0.75,
        "div": lambda x: x / 3,
        "add_scalar": lambda x: aten.add.Scalar(x, 1.5, 2),
        "sub_scalar": lambda x: aten.sub.Scalar(x, 2, 0.5),
        "mul_scalar": lambda x: aten.mul.Scalar(x, -0.75),
        "div_scalar": lambda x: aten.div.Scalar(x, 3),
        "rsub_scalar": lambda x: aten.rsub.Scalar(x, 2, 3),
        "div_by_zero": lambda x: x / 0.0,
    }
    return portable(operators, (noise(3, 4),))


DIVISIONS = {
    "true": torch.div,
    "floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "floor_divide": torch.floor_divide,
    "remainder": torch.remainder,
    "fmod": torch.fmod,
}


@program
def division():
    operators = {
        **DIVISIONS,
        "floor_scalar": lambda a, b: torch.div(a, 0.75, rounding_mode="floor"),
        "trunc_scalar": lambda a, b: aten.div.Scalar_mode(a, -0.75, rounding_mode="trunc"),
        "remainder_scalar": lambda a, b: torch.remainder(a, -1.5),
        "fmod_scalar": lambda a, b: torch.fmod(a, -1.5),
        "by_zero": lambda a, b: torch.div(a, b * 0),
        "floor_by_zero": lambda a, b: torch.div(a, b * 0, rounding_mode="floor"),
    }
    a = torch.tensor([7.0, -7.0, 7.0, -7.0, 0.5, -0.5, 0.0, 6.0])
    b = torch.tensor([2.0, 2.0, -2.0, -2.0, 0.25, 3.0, 5.0, 1.5])
    return portable(operators, (torch.cat([a, noise(4) * 5]), torch.cat([b, noise(4)])))


@program
def division_of_integers():
    operators = {
        **DIVISIONS,
        "floor_scalar": lambda a, b: torch.div(a, 4, rounding_mode="floor"),
        "trunc_scalar": lambda a, b: torch.div(a, -4, rounding_mode="trunc"),
        "remainder_scalar": lambda a, b: torch.remainder(a, -3),
        "fmod_scalar": lambda a, b: torch.fmod(a, -3),
        "true_scalar": lambda a, b: a / 4,
    }
    a, b = torch.tensor([7, -7, 7, -7, 0, -1, 9]), torch.tensor([2, 2, -2, -2, 5, 3, 9])
    return portable(operators, (a, b))


@program
def integers_32():
    operators = {
        "add": torch.add,
        "add_alpha": lambda a, b: torch.add(a, b, alpha=3),
        "sub": torch.sub,
        "mul": torch.mul,
        "abs": lambda a, b: a.abs(),
        "neg": lambda a, b: -a,
        "sign": lambda a, b: a.sign(),
        "minimum": torch.minimum,
        "maximum": torch.maximum,
        "clamp": lambda a, b: a.clamp(-2, 5),
        "relu": lambda a, b: a.relu(),
        "square": lambda a, b: a**2,
        "power": lambda a, b: a ** b.abs(),
        "floor": lambda a, b: a.floor(),
        "exp": lambda a, b: a.exp(),
        "sigmoid": lambda a, b: a.sigmoid(),
        "sum": lambda a, b: a.sum(),
        "mean": lambda a, b: a.float().mean(),
    }
    draw = [integers(-9, 9, 3, 4, dtype=torch.int32) for _ in range(2)]
    return portable(operators, tuple(draw))


@program
def integers_wrap():
    """Whole numbers wrap around."""
    operators = {
        "add": torch.add,
        "sub": torch.sub,
        "mul": torch.mul,
        "neg": lambda a, b: -a,
        "abs": lambda a, b: a.abs(),
        "add_scalar": lambda a, b: a + 100,
        "mul_scalar": lambda a, b: a * 3,
    }
    edge = torch.tensor([2**31 - 1, -(2**31), 2**30, -1], dtype=torch.int32)
    byte = torch.tensor([255, 0, 100, 3], dtype=torch.uint8)
    methods = {
        "int32": Method(Ops(operators), [(edge, edge.flip(0))]),
        "uint8": Method(Ops(operators), [(byte, byte.flip(0))]),
    }
    return Program("portable", methods)


@program
def integers_64():
    operators = {
        "add": torch.add,
        "sub": torch.sub,
        "mul": torch.mul,
        "abs": lambda a, b: a.abs(),
        "neg": lambda a, b: -a,
        "minimum": torch.minimum,
        "maximum": torch.maximum,
        "clamp": lambda a, b: a.clamp(min=-2),
        "add_scalar": lambda a, b: a + 5,
        "mul_scalar": lambda a, b: a * 3,
        "mul_float": lambda a, b: a * 0.5,
        "eq": torch.eq,
        "lt_scalar": lambda a, b: a < 2,
        "sum": lambda a, b: a.sum(0),
        "max": lambda a, b: a.max(1)[0],
        "cumsum": lambda a, b: a.cumsum(1),
    }
    large = torch.tensor([[2**53 + 1, -(2**53) - 1, 2**60, 3]])
    a, b = (
        torch.cat([integers(-9, 9, 3, 4), large]),
        torch.cat([integers(-9, 9, 3, 4), large // 2**52]),
    )
    return portable(operators, (a, b))


@program
def mixed_dtypes():
    operators = {
        "int_and_float": lambda f, i, s, b, u, h: f + i,
        "float_and_bool": lambda f, i, s, b, u, h: f * b,
        "int_and_bool": lambda f, i, s, b, u, h: i + b,
        "long_and_short": lambda f, i, s, b, u, h: i * s,
        "byte_and_short": lambda f, i, s, b, u, h: u - s,
        "bool_and_bool": lambda f, i, s, b, u, h: b + b,
        "half_and_float": lambda f, i, s, b, u, h: h * f,
        "half_and_long": lambda f, i, s, b, u, h: h + i,
        "long_divided": lambda f, i, s, b, u, h: i / (s + 10),
        "long_and_scalar": lambda f, i, s, b, u, h: i + 0.5,
        "bool_and_scalar": lambda f, i, s, b, u, h: b * 3,
        "less": lambda f, i, s, b, u, h: i < f,
        "equal": lambda f, i, s, b, u, h: u == s,
        "where": lambda f, i, s, b, u, h: torch.where(b, i, f),
        "maximum": lambda f, i, s, b, u, h: torch.maximum(s, i),
        "power": lambda f, i, s, b, u, h: f.abs() ** s,
    }
    inputs = (
        noise(2, 3),
        integers(-5, 5, 2, 3),
        integers(-5, 5, 2, 3, dtype=torch.int16),
        integers(0, 2, 2, 3).bool(),
        integers(0, 9, 2, 3, dtype=torch.uint8),
        noise(2, 3).half(),
    )
    return portable(operators, inputs)


@program
def powers():
    operators = {
        "square": lambda x, y: x**2,
        "cube": lambda x, y: x**3,
        "root": lambda x, y: x**0.5,
        "inverse": lambda x, y: x**-1,
        "tensor": torch.pow,
        "base": lambda x, y: 2.0**y,
        "base_whole": lambda x, y: 3**y,
        "sqrt": lambda x, y: x.sqrt(),
        "rsqrt": lambda x, y: x.rsqrt(),
        "reciprocal": lambda x, y: x.reciprocal(),
        "square_function": lambda x, y: y.square(),
    }
    return portable(operators, (torch.cat([noise(2, 4).exp(), noise(2, 4)]), noise(4, 4) * 2))


@program
def exponentials():
    operators = {
        "exp": torch.exp,
        "expm1": torch.expm1,
        "log": torch.log,
        "log1p": torch.log1p,
        "log2": torch.log2,
        "log10": torch.log10,
        "erf": torch.erf,
        "logit": torch.logit,
        "logit_eps": lambda x: torch.logit(x, 0.25),
    }
    edge = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, 100.0, -100.0, 1e-6, INF, -INF, NAN])
    return portable(operators, (torch.cat([torch.rand(7), edge, noise(6) * 3]),))


@program
def trigonometry():
    names = "sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh".split()
    operators = {name: (lambda x, y, name=name: getattr(torch, name)(x)) for name in names}
    operators["atan2"] = torch.atan2
    edge = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 3.0, -30.0, 1.5, INF, -INF, NAN])
    x = torch.cat([torch.rand(8) * 2 - 1, edge])
    return portable(operators, (x, torch.cat([noise(8), edge.flip(0)])))


@program
def activations():
    operators = {
        "sigmoid": torch.sigmoid,
        "relu": torch.relu,
        "relu6": F.relu6,
        "gelu": F.gelu,
        "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
        "leaky_relu": F.leaky_relu,
        "leaky_relu_slope": lambda x: F.leaky_relu(x, 0.25),
        "elu": F.elu,
        "elu_alpha": lambda x: F.elu(x, 0.5),
        "elu_scales": lambda x: aten.elu(x, 1.5, 2.0, 0.5),
        "hardtanh": lambda x: F.hardtanh(x, -0.5, 2.0),
        "clamp": lambda x: x.clamp(-1.5, 0.5),
        "clamp_min": lambda x: x.clamp(min=0.25),
        "clamp_max": lambda x: x.clamp(max=0.25),
        "hardswish": F.hardswish,
        "hardsigmoid": F.hardsigmoid,
        "silu": F.silu,
    }
    edge = torch.tensor([0.0, -0.0, 1.0, -1.0, 3.0, -3.0, 6.0, -9.0, 0.5, -0.5, 20.0, -30.0])
    return portable(operators, (torch.cat([edge, noise(8) * 3]),))


@program
def activations_composed():
    operators = {
        "softplus": F.softplus,
        "mish": F.mish,
        "softsign": F.softsign,
        "selu": F.selu,
        "logsigmoid": F.logsigmoid,
        "hardshrink": F.hardshrink,
        "softshrink": F.softshrink,
        "glu": lambda x: F.glu(x, -1),
        "glu_first": lambda x: F.glu(x, 0),
        "prelu": lambda x: F.prelu(x, torch.full((1,), 0.3)),
    }
    return portable(operators, (noise(4, 6) * 3,))


@program
def clamp_by_tensors():
    operators = {
        "both": lambda x, low, high: torch.clamp(x, low, high),
        "low": lambda x, low, high: torch.clamp(x, min=low),
        "high": lambda x, low, high: torch.clamp(x, max=high),
    }
    return portable(operators, (noise(3, 4), noise(4) - 0.5, noise(3, 1) + 0.5))


@program
def rounding():
    operators = {
        "floor": torch.floor,
        "ceil": torch.ceil,
        "round": torch.round,
        "trunc": torch.trunc,
        "frac": torch.frac,
        "sign": torch.sign,
        "abs": torch.abs,
        "neg": torch.neg,
    }
    halves = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.0, -0.0, 2.4999, -3.7, INF, -INF])
    return portable(operators, (torch.cat([halves, noise(8) * 100]),))


@program
def not_a_number():
    """Operators for values that are no numbers, and what others make of them."""
    operators = {
        "isnan": lambda a, b: torch.isnan(a),
        "isinf": lambda a, b: torch.isinf(a),
        "isfinite": lambda a, b: torch.isfinite(a),
        "maximum": torch.maximum,
        "minimum": torch.minimum,
        "relu": lambda a, b: a.relu(),
        "clamp": lambda a, b: a.clamp(-1, 1),
        "sign": lambda a, b: a.sign(),
        "eq": torch.eq,
        "ne": torch.ne,
        "lt": torch.lt,
        "ge": torch.ge,
        "amax": lambda a, b: a.amax(),
        "max": lambda a, b: a.view(2, 5).max(1),
        "argmin": lambda a, b: a.argmin(),
        "sum": lambda a, b: b.sum(),
        "nan_to_num": lambda a, b: torch.nan_to_num(a, 1.0, 2.0, 3.0),
        "to_bool": lambda a, b: a.bool(),
        "logical_not": lambda a, b: a.logical_not(),
    }
    a = torch.tensor([NAN, INF, -INF, 0.0, -0.0, 1.0, NAN, 2.0, -3.0, NAN])
    b = torch.tensor([1.0, INF, INF, -0.0, 0.0, NAN, NAN, -INF, -3.0, 4.0])
    return portable(operators, (a, b))


@program
def comparisons():
    kinds = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
    operators = {name: (lambda a, b, c, name=name: getattr(torch, name)(a, b)) for name in kinds}
    for name in kinds:
        operators[f"{name}_scalar"] = lambda a, b, c, name=name: getattr(torch, name)(a, 1)
        operators[f"{name}_row"] = lambda a, b, c, name=name: getattr(torch, name)(c, a)
    a, b = integers(-2, 3, 3, 4).float(), integers(-2, 3, 3, 4).float()
    return portable(operators, (a, b, integers(-2, 3, 4)))


@program
def logic():
    operators = {
        "and": lambda a, b, x: torch.logical_and(a, b),
        "or": lambda a, b, x: torch.logical_or(a, b),
        "xor": lambda a, b, x: torch.logical_xor(a, b),
        "not": lambda a, b, x: torch.logical_not(a),
        "and_float": lambda a, b, x: torch.logical_and(a, x),
        "not_float": lambda a, b, x: torch.logical_not(x),
        "bitwise_and": lambda a, b, x: a & b,
        "bitwise_or": lambda a, b, x: a | b,
        "bitwise_xor": lambda a, b, x: a ^ b,
        "bitwise_not": lambda a, b, x: ~a,
        "where": lambda a, b, x: torch.where(a, x, 0.5),
    }
    a, b = (integers(0, 2, 3, 4).bool() for _ in range(2))
    return portable(operators, (a, b, integers(-1, 2, 3, 4).float()))


@program
def bits():
    operators = {
        "and": lambda a, b, s: a & b,
        "or": lambda a, b, s: a | b,
        "xor": lambda a, b, s: a ^ b,
        "not": lambda a, b, s: ~a,
        "left": lambda a, b, s: aten.bitwise_left_shift(a, s),
        "right": lambda a, b, s: aten.bitwise_right_shift(a, s),
        "and_scalar": lambda a, b, s: a & 12,
        "or_scalar": lambda a, b, s: a | 5,
        "xor_scalar": lambda a, b, s: a ^ -1,
        "left_scalar": lambda a, b, s: aten.bitwise_left_shift(a, 3),
        "right_scalar": lambda a, b, s: aten.bitwise_right_shift(a, 1),
        "and_kernel": lambda a, b, s: aten.bitwise_and.Scalar(a, 12),
        "or_kernel": lambda a, b, s: aten.bitwise_or.Scalar(a, 5),
        "xor_kernel": lambda a, b, s: aten.bitwise_xor.Scalar(a, -1),
    }
    a, b = (integers(-99, 99, 3, 4, dtype=torch.int32) for _ in range(2))
    return portable(operators, (a, b, integers(0, 6, 4, dtype=torch.int32)))


@program
def selections():
    operators = {
        "where": lambda c, x, y: torch.where(c, x, y),
        "where_row": lambda c, x, y: torch.where(c[0], x, y),
        "where_scalars": lambda c, x, y: torch.where(c, 1.0, -1.0),
        "where_scalar": lambda c, x, y: torch.where(x > 0, x, 0.0),
        "masked_fill": lambda c, x, y: x.masked_fill(c, -2.5),
        "masked_fill_row": lambda c, x, y: x.masked_fill(c[:1], float("-inf")),
        "masked_fill_tensor": lambda c, x, y: x.masked_fill(c, y.sum()),
        "masked_scatter": lambda c, x, y: x.masked_scatter(c, y),
    }
    return portable(operators, (integers(0, 2, 3, 4).bool(), noise(3, 4), noise(3, 4)))
