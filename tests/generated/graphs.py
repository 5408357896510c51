"""Small random graphs: two to ten nodes, each chosen so that dtypes and shapes fit."""

import numpy as np

from build import CODES, SETS, Dim, Skip, fixed


class Value:
    """A tensor of the graph: its name, dtype and dimensions."""

    def __init__(self, name, dtype, dims):
        self.name, self.dtype, self.dims = name, dtype, list(dims)

    @property
    def rank(self):
        return len(self.dims)

    def elements(self):
        return max(int(np.prod([dim.sizes[number] for dim in self.dims])) for number in range(SETS))


def build_graph(b):
    b.opset = max(b.opset, 13)
    b.rtol, b.atol = 1e-3, 1e-6
    b.check_stability = True
    graph = Graph(b)
    graph.start()
    wanted = b.between(2, 10)
    tries = 0
    while len(graph.made) < wanted and tries < 80:
        tries += 1
        graph.step()
    graph.finish()
    b.label = "graph/" + "-".join(graph.made)


class Graph:
    def __init__(self, b):
        self.b = b
        self.values = []
        self.used = set()
        self.made = []

    # ---- choosing ----

    def start(self):
        b = self.b
        self.shared = [b.dim(1, 6, 0.5) for _ in range(4)]
        for _ in range(b.between(1, 3)):
            dims = [self.any_dim() for _ in range(b.between(1, 4))]
            self.take("float32", dims)
        if b.chance(0.2):
            self.take(b.pick("int64", "int32", "uint8"), [self.any_dim() for _ in range(b.between(1, 3))])

    def any_dim(self):
        b = self.b
        return b.pick(*self.shared) if b.chance(0.8) else Dim(b.pick(1, 1, 2, 3))

    def take(self, dtype, dims):
        b = self.b
        if b.chance(0.35) and all(not dim.name and dim.is_constant for dim in dims):
            name = b.weights(dtype, [dim.sizes[0] for dim in dims], "normal" if dtype == "float32" else "small")
        elif all(dim.name or dim.is_constant for dim in dims):
            name = b.input(dtype, dims, kind="normal" if dtype == "float32" else "small")
        else:
            # A size that follows from others is no input's.
            return None
        value = Value(name, dtype, dims)
        self.values.append(value)
        return value

    def choose(self, dtypes=None, low=0, high=9):
        fits = [v for v in self.values if (not dtypes or v.dtype in dtypes) and low <= v.rank <= high]
        if not fits:
            raise Skip("nothing fits")
        # The newest are taken most: chains are what is looked for.
        return fits[-1 - min(int(self.b.rng.geometric(0.45)) - 1, len(fits) - 1)]

    def add(self, operator, inputs, dtype, dims, outputs=1, **attributes):
        """A node of one output, or of several with lists of dims."""
        b = self.b
        names = b.node(operator, [value if isinstance(value, str) else value.name for value in inputs], outputs, **attributes)
        self.used.update(value.name for value in inputs if not isinstance(value, str))
        for name, each in zip([names] if outputs == 1 else names, [dims] if outputs == 1 else dims):
            value = Value(name, dtype, each)
            if value.elements() > 5000:
                raise Skip("it grows too large")
            self.values.append(value)
        self.made.append(operator)
        return self.values[-1]

    def step(self):
        kinds = [
            (self.expand, 5), (self.tile, 3), (self.transpose, 3), (self.reshape, 3), (self.matmul, 7), (self.gemm, 3),
            (self.conv, 3), (self.binary, 5), (self.unary, 4), (self.reduce, 4), (self.concat, 3), (self.split, 2),
            (self.slice, 3), (self.cast, 1), (self.quantize, 2), (self.gather, 2), (self.softmax, 2), (self.unsqueeze, 2),
            (self.squeeze, 2), (self.where, 1), (self.pad, 1), (self.pool, 1), (self.einsum, 2), (self.layer_norm, 1),
            (self.shape, 1), (self.cumsum, 1), (self.clip, 1),
        ]
        weights = np.array([weight for _, weight in kinds], float)
        kind, _ = kinds[int(self.b.rng.choice(len(kinds), p=weights / weights.sum()))]
        before = (len(self.b.nodes), len(self.b.initializers), len(self.b.inputs), len(self.values), len(self.made))
        try:
            kind()
        except Skip:
            nodes, stored, inputs, values, made = before
            del self.b.nodes[nodes:], self.b.initializers[stored:], self.b.inputs[inputs:]
            del self.values[values:], self.made[made:]

    def finish(self):
        """What nothing uses is an output, with sometimes what is used too."""
        b = self.b
        made = {name for node in b.nodes if node.op_type != "Constant" for name in node.output}
        for value in self.values:
            if value.name in made and (value.name not in self.used or b.chance(0.1)):
                b.output(value.name)
        used = {name for node in b.nodes for name in node.input}
        b.inputs = [entry for entry in b.inputs if entry[0] in used]
        b.initializers = [tensor for tensor in b.initializers if tensor.name in used]
        if not b.outputs or not b.inputs:
            raise Skip("an empty graph")

    # ---- shapes ----

    def expand(self):
        b, x = self.b, self.choose()
        dims = [self.any_dim() if dim.is_one and b.chance(0.7) else dim for dim in x.dims]
        dims = [self.any_dim() for _ in range(b.pick(0, 0, 1, 2))] + dims
        if len(dims) > 5:
            raise Skip("rank")
        self.add("Expand", [x, b.shape_of(dims)], x.dtype, dims)

    def tile(self):
        b, x = self.b, self.choose(low=1)
        repeats = [b.pick(1, 1, 2, 3) for _ in x.dims]
        dims = [dim.map(lambda size, repeat=repeat: size * repeat) if repeat > 1 else dim for dim, repeat in zip(x.dims, repeats)]
        self.add("Tile", [x, b.given(np.array(repeats, np.int64))], x.dtype, dims)

    def transpose(self):
        b, x = self.b, self.choose(low=2)
        order = [int(axis) for axis in b.rng.permutation(x.rank)]
        self.add("Transpose", [x], x.dtype, [x.dims[axis] for axis in order], perm=order)

    def reshape(self):
        b, x = self.b, self.choose(low=1)
        at = b.between(0, x.rank - 1)
        if x.rank > 1 and at < x.rank - 1:
            # Two axes become one.
            dims = x.dims[:at] + [x.dims[at].map(lambda one, other: one * other, x.dims[at + 1])] + x.dims[at + 2 :]
            target = [0] * at + [-1] + [dim.sizes[0] if dim.is_constant and not dim.name else None for dim in x.dims[at + 2 :]]
        else:
            dims = x.dims[:at] + [Dim(1), x.dims[at]] + x.dims[at + 1 :]
            target = [0] * at + [1, -1] + [dim.sizes[0] if dim.is_constant and not dim.name else None for dim in x.dims[at + 1 :]]
        if None in target:
            self.add("Reshape", [x, b.shape_of(dims)], x.dtype, dims)
        else:
            self.add("Reshape", [x, b.given(np.array(target, np.int64))], x.dtype, dims)

    def unsqueeze(self):
        b, x = self.b, self.choose(high=4)
        axis = b.between(0, x.rank)
        dims = x.dims[:axis] + [Dim(1)] + x.dims[axis:]
        self.add("Unsqueeze", [x, b.given(np.array([axis], np.int64))], x.dtype, dims)

    def squeeze(self):
        b, x = self.b, self.choose(low=1)
        ones = [place for place, dim in enumerate(x.dims) if dim.is_one]
        if not ones:
            raise Skip("no axis of one")
        axis = b.pick(*ones)
        dims = x.dims[:axis] + x.dims[axis + 1 :]
        self.add("Squeeze", [x, b.given(np.array([axis], np.int64))], x.dtype, dims)

    def concat(self):
        b, x = self.b, self.choose(low=1)
        axis = b.between(0, x.rank - 1)
        parts = [x]
        for _ in range(b.between(1, 2)):
            fits = [
                v for v in self.values
                if v.dtype == x.dtype and v.rank == x.rank
                and all(place == axis or dim == other for place, (dim, other) in enumerate(zip(v.dims, x.dims)))
            ]
            parts.append(b.pick(*fits))
        dims = list(x.dims)
        dims[axis] = Dim([sum(part.dims[axis].sizes[number] for part in parts) for number in range(SETS)])
        self.add("Concat", parts, x.dtype, dims, axis=b.pick(axis, axis - x.rank))

    def split(self):
        b, x = self.b, self.choose(low=1)
        places = [place for place, dim in enumerate(x.dims) if dim.is_constant and not dim.name and dim.sizes[0] > 1]
        if not places:
            raise Skip("nothing to split")
        axis = b.pick(*places)
        first = b.between(1, x.dims[axis].sizes[0] - 1)
        parts = [first, x.dims[axis].sizes[0] - first]
        dims = [x.dims[:axis] + [Dim(part)] + x.dims[axis + 1 :] for part in parts]
        self.add("Split", [x, b.stored(np.array(parts, np.int64))], x.dtype, dims, 2, axis=axis)

    def slice(self):
        b, x = self.b, self.choose(low=1)
        axis = b.between(0, x.rank - 1)
        least = min(x.dims[axis].sizes)
        if least < 2:
            raise Skip("nothing to leave out")
        start, end, step = b.pick((1, 2**63 - 1, 1), (0, -1, 1), (0, 1, 1), (-1, -(2**63), -1), (0, 2**63 - 1, 2), (-2, 2**63 - 1, 1))
        dim = x.dims[axis].map(lambda size: len(range(size)[slice(start, None if abs(end) > 2**40 else end, step)]))
        dims = x.dims[:axis] + [dim] + x.dims[axis + 1 :]
        names = [b.given(np.array([value], np.int64), 0.9) for value in (start, end, axis, step)]
        self.add("Slice", [x, *names], x.dtype, dims)

    def gather(self):
        b, x = self.b, self.choose(low=1)
        axis = b.between(0, x.rank - 1)
        least = min(x.dims[axis].sizes)
        if least < 1:
            raise Skip("empty")
        count = b.pick(None, 1, 2, 3)
        shape = () if count is None else (count,)
        found = b.rng.integers(-least, least, shape)
        dims = x.dims[:axis] + fixed(*shape) + x.dims[axis + 1 :]
        self.add("Gather", [x, b.given(np.array(found, np.int64))], x.dtype, dims, axis=axis)

    def pad(self):
        b, x = self.b, self.choose(("float32",), low=1)
        pads = [b.pick(0, 0, 1) for _ in range(2 * x.rank)]
        dims = [dim.map(lambda size, more=more: size + more) if more else dim for dim, more in zip(x.dims, map(sum, zip(pads[: x.rank], pads[x.rank :])))]
        self.add("Pad", [x, b.given(np.array(pads, np.int64), 0.9)], x.dtype, dims, mode=b.pick("constant", "edge"))

    def shape(self):
        b, x = self.b, self.choose(low=1)
        self.add("Shape", [x], "int64", fixed(x.rank))
        if b.chance(0.5):
            self.add("Cast", [self.values[-1]], "float32", self.values[-1].dims, to=1)

    # ---- products ----

    def matrix(self, *dims):
        """A value that ends in these dimensions: one that is there, or a new one."""
        b = self.b
        count = len(dims)
        fits = [v for v in self.values if v.dtype == "float32" and v.rank >= count and v.dims[v.rank - count :] == list(dims)]
        if fits and b.chance(0.5):
            return b.pick(*fits)
        prefix = [Dim(1)] if b.chance(0.1) else []
        made = self.take("float32", prefix + list(dims))
        if made is None:
            raise Skip("no such input")
        return made

    def matmul(self):
        b, x = self.b, self.choose(("float32",), low=2)
        if b.chance(0.5):
            y = self.matrix(x.dims[-1], self.any_dim())
        else:
            x, y = self.matrix(self.any_dim(), x.dims[-2]), x
        prefix = broadcast(x.dims[:-2], y.dims[:-2])
        self.add("MatMul", [x, y], "float32", prefix + [x.dims[-2], y.dims[-1]])
        if b.chance(0.3):
            self.add("Add", [self.values[-1], self.bias(y.dims[-1])], "float32", self.values[-1].dims)

    def bias(self, dim):
        made = self.take("float32", [dim])
        if made is None:
            raise Skip("no such input")
        return made

    def gemm(self):
        b, x = self.b, self.choose(("float32",), low=2, high=2)
        turned = b.pick(0, 1)
        rows, inner = (x.dims[1], x.dims[0]) if turned else x.dims
        columns = self.any_dim()
        other = b.pick(0, 1)
        y = self.take("float32", [columns, inner] if other else [inner, columns])
        if y is None:
            raise Skip("no such input")
        inputs = [x, y] + ([self.bias(columns)] if b.chance(0.5) else [])
        if b.chance(0.2):
            inputs[:2] = [y, x]
            self.add("Gemm", inputs[:2], "float32", [columns, rows], transA=0 if other else 1, transB=0 if turned else 1)
        else:
            self.add("Gemm", inputs, "float32", [rows, columns], transA=turned, transB=other)

    def conv(self):
        b, x = self.b, self.choose(("float32",), low=3, high=4)
        channels = x.dims[1]
        if not channels.is_constant or channels.name or min(min(dim.sizes) for dim in x.dims) < 1:
            raise Skip("channels are open")
        rank, outs = x.rank - 2, b.between(1, 4)
        kernel = [b.pick(1, 1, 1, 3) for _ in range(rank)]
        pads = [size // 2 for size in kernel] * 2
        weights = b.weights("float32", (outs, channels.sizes[0], *kernel), "normal")
        inputs = [x, weights] + ([b.weights("float32", (outs,), "normal")] if b.chance(0.5) else [])
        self.add("Conv", inputs, "float32", [x.dims[0], Dim(outs), *x.dims[2:]], kernel_shape=kernel, pads=pads)

    def pool(self):
        b, x = self.b, self.choose(("float32",), low=3, high=4)
        if min(min(dim.sizes) for dim in x.dims) < 1:
            raise Skip("empty")
        rank = x.rank - 2
        if b.chance(0.3):
            self.add("GlobalAveragePool", [x], "float32", x.dims[:2] + fixed(*[1] * rank))
        else:
            name = b.pick("MaxPool", "AveragePool")
            self.add(name, [x], "float32", x.dims, kernel_shape=[3] * rank, pads=[1] * (2 * rank))

    def einsum(self):
        b, x = self.b, self.choose(("float32",), low=1, high=3)
        letters = "abc"[: x.rank]
        kept = "".join(letter for letter in b.rng.permutation(list(letters)) if b.chance(0.7))
        sizes = dict(zip(letters, x.dims))
        if b.chance(0.4):
            self.add("Einsum", [x], "float32", [sizes[letter] for letter in kept], equation=f"{letters}->{kept}")
            return
        other = "".join(letter for letter in letters if b.chance(0.6)) + "d"
        sizes["d"] = self.any_dim()
        y = self.take("float32", [sizes[letter] for letter in other])
        if y is None:
            raise Skip("no such input")
        kept += b.pick("d", "d", "")
        self.add("Einsum", [x, y], "float32", [sizes[letter] for letter in kept], equation=f"{letters},{other}->{kept}")

    # ---- values ----

    def partner(self, x):
        b = self.b
        fits = [v for v in self.values if v.dtype == x.dtype and can_broadcast(v.dims, x.dims)]
        if fits and b.chance(0.7):
            return b.pick(*fits)
        dims = [Dim(1) if b.chance(0.3) else dim for dim in x.dims[b.between(0, x.rank) if b.chance(0.4) else 0 :]]
        return self.take(x.dtype, dims) or b.pick(*fits)

    def binary(self):
        b, x = self.b, self.choose(("float32", "int64", "int32"))
        y = self.partner(x)
        name = b.pick("Add", "Sub", "Mul", "Max", "Min", "Add", "Mul", "Div" if x.dtype == "float32" else "Add")
        pair = [x, y] if b.chance(0.7) else [y, x]
        self.add(name, pair, x.dtype, broadcast(x.dims, y.dims))

    def where(self):
        b, x = self.b, self.choose(("float32", "int64"))
        y = self.partner(x)
        dims = broadcast(x.dims, y.dims)
        limit = b.stored(np.array(0, x.dtype))
        flags = self.add("Greater", [x, limit], "bool", x.dims)
        self.add("Where", [flags, x, y], x.dtype, dims)

    def unary(self):
        b, x = self.b, self.choose(("float32",))
        name = b.pick("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Exp", "Erf", "LeakyRelu", "Identity", "HardSwish", "Softplus", "Sign")
        if name == "HardSwish":
            b.opset = max(b.opset, 14)
        self.add(name, [x], "float32", x.dims)

    def clip(self):
        b, x = self.b, self.choose(("float32",))
        self.add("Clip", [x, b.stored(np.array(-0.5, np.float32)), b.stored(np.array(1.5, np.float32))], "float32", x.dims)

    def softmax(self):
        b, x = self.b, self.choose(("float32",), low=1)
        self.add(b.pick("Softmax", "Softmax", "LogSoftmax"), [x], "float32", x.dims, axis=b.axis(x.rank))

    def reduce(self):
        b, x = self.b, self.choose(("float32",), low=1)
        name = b.pick("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceLogSumExp")
        axes = sorted(int(axis) for axis in b.rng.permutation(x.rank)[: b.between(1, x.rank)])
        keep = b.pick(0, 1)
        dims = [Dim(1) if place in axes else dim for place, dim in enumerate(x.dims) if keep or place not in axes]
        if name != "ReduceSum" and b.opset < 18:
            self.add(name, [x], "float32", dims, axes=axes, keepdims=keep)
        else:
            self.add(name, [x, b.given(np.array(axes, np.int64))], "float32", dims, keepdims=keep)

    def cumsum(self):
        b, x = self.b, self.choose(("float32",), low=1)
        self.add("CumSum", [x, b.stored(np.array(b.axis(x.rank), np.int64))], "float32", x.dims)

    def layer_norm(self):
        b, x = self.b, self.choose(("float32",), low=2)
        b.opset = max(b.opset, 17)
        scale = self.bias(x.dims[-1])
        self.add("LayerNormalization", [x, scale], "float32", x.dims, axis=-1)

    def cast(self):
        b, x = self.b, self.choose(("int64", "int32", "uint8", "bool"))
        self.add("Cast", [x], "float32", x.dims, to=CODES["float32"])
        del b

    def quantize(self):
        b, x = self.b, self.choose(("float32",))
        dtype = b.pick("uint8", "int8")
        scale, zero = b.stored(np.array(b.pick(0.0625, 0.05), np.float32)), b.stored(np.array(b.between(0, 100), dtype))
        quantized = self.add("QuantizeLinear", [x, scale, zero], dtype, x.dims)
        self.add("DequantizeLinear", [quantized, scale, zero], "float32", x.dims)


def broadcast(left, right):
    rank = max(len(left), len(right))
    left, right = [Dim(1)] * (rank - len(left)) + list(left), [Dim(1)] * (rank - len(right)) + list(right)
    dims = []
    for one, other in zip(left, right):
        if one == other or (other.is_one and not other.name):
            dims.append(one)
        elif one.is_one and not one.name:
            dims.append(other)
        else:
            raise Skip("they do not broadcast")
    return dims


def can_broadcast(left, right):
    try:
        broadcast(left, right)
    except Skip:
        return False
    return True
