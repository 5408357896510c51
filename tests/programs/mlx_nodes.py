"""Executes the MLX programs of tests/fixtures/payloads node by node with MLX itself, on a CPU, and holds the
outputs against those of `cases.json`.

    pip install 'mlx[cpu]'      # beside what payloads.py needs
    python tests/programs/mlx_nodes.py                    # all
    python tests/programs/mlx_nodes.py mlp mlx_rope       # some networks

The payloads are decoded with the schema of the executorch wheel, not with this tool. Prints the worst difference
of every program, and for every kind of node that of the outputs which depend on it, as parts of an output's
largest magnitude. Ends with 1 where a difference is too large or a node is not known.
"""

import json
import sys
import typing
import zipfile
from pathlib import Path
from types import SimpleNamespace

import mlx.core as mx
import numpy as np

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures" / "payloads"
TOLERANCES = {"bf16": 2e-2}
# ScalarType of ExecuTorch.
DTYPES = {
    0: mx.uint8, 1: mx.int8, 2: mx.int16, 3: mx.int32, 4: mx.int64, 5: mx.float16, 6: mx.float32, 11: mx.bool_,
    15: mx.bfloat16, 27: mx.uint16, 28: mx.uint32, 29: mx.uint64,
}  # fmt: skip
AXES = {1: ("",), 2: ("_h", "_w"), 3: ("_d", "_h", "_w")}


def decoded(table, schema):
    """A table of the FlatBuffer as the schema's dataclass of its name, which has all fields and their types."""
    kind = getattr(schema, type(table).__name__)
    hints = typing.get_type_hints(kind)
    return kind(
        **{name: field(table, name, hint, schema) for name, hint in hints.items() if name != "op"}
    )


def field(table, name, hint, schema):
    """A field of this type."""
    accessor = "".join(part[:1].upper() + part[1:] for part in name.split("_"))
    if typing.get_origin(hint) is typing.Union:
        hint = next(arg for arg in typing.get_args(hint) if arg is not type(None))
    if typing.get_origin(hint) is list:
        (item,) = typing.get_args(hint)
        items = range(getattr(table, f"{accessor}Length")())
        return [plain(getattr(table, accessor)(at), item, schema) for at in items]
    return plain(getattr(table, accessor)(), hint, schema)


def plain(value, hint, schema):
    """A value of the FlatBuffer as one of Python."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, bytes):
        return value.decode()
    if hint in (schema.Tid, schema.Vid):
        return hint(value.Idx())
    return decoded(value, schema)


class Payload:
    """A graph with its constants and what it keeps."""

    def __init__(self, data, named):
        import importlib

        from executorch.backends.mlx.serialization import mlx_graph_schema as schema
        from executorch.backends.mlx.serialization._generated.mlx_delegate.MLXGraph import MLXGraph
        from executorch.backends.mlx.serialization._generated_serializers import MLX_OP_TYPE_NAMES

        self.schema = schema
        graph = MLXGraph.GetRootAs(data[24:], 0)
        metas = [graph.TensorMeta(at) for at in range(graph.TensorMetaLength())]
        self.metas = [
            (
                [meta.Shape(at).Value() for at in range(meta.ShapeLength())],
                DTYPES[meta.ScalarType()],
            )
            for meta in metas
        ]
        self.inputs = [graph.InputMap(at) for at in range(graph.InputMapLength())]
        self.outputs = [graph.OutputMap(at) for at in range(graph.OutputMapLength())]
        self.chains = []
        for at in range(graph.InstructionChainsLength()):
            chain, nodes = graph.InstructionChains(at), []
            for place in range(chain.InstructionsLength()):
                instruction = chain.Instructions(place)
                name = MLX_OP_TYPE_NAMES[instruction.OpType()]
                module = importlib.import_module(
                    f"executorch.backends.mlx.serialization._generated.mlx_delegate.{name}"
                )
                node, union = getattr(module, name)(), instruction.Op()
                node.Init(union.Bytes, union.Pos)
                nodes.append(decoded(node, schema))
            self.chains.append(nodes)
        self.main, self.init = graph.MainChainIdx(), graph.InitChainIdx()
        names = [graph.NamedSlots(at) for at in range(graph.NamedSlotsLength())]
        names = {
            slot.Slot().Idx(): slot.Name().decode() for slot in names if slot.Slot().SlotType() == 0
        }
        self.kept = [
            graph.MutableBufferMap(at).Idx() for at in range(graph.MutableBufferMapLength())
        ]
        self.tensors, self.values, self.kinds = {}, {}, {}
        for slot in [*range(graph.NumConstantTensors()), *self.kept]:
            shape, dtype = self.metas[slot]
            stored = named.get(names.get(slot))
            self.tensors[slot] = (
                mx.zeros(shape, dtype) if stored is None else mx_array(stored, shape, dtype)
            )
            self.kinds[slot] = frozenset()
        if self.init >= 0:
            self.run_chain(self.init)

    def run(self, arguments):
        """The outputs for these inputs, each with the kinds of nodes it depends on."""
        for slot, value in zip(self.inputs, arguments, strict=True):
            if slot.SlotType():
                self.values[slot.Idx()] = int(value)
            else:
                _, dtype = self.metas[slot.Idx()]
                self.tensors[slot.Idx()] = value.astype(dtype)
                self.kinds[slot.Idx()] = frozenset()
        self.run_chain(self.main)
        return [(self.tensors[slot.Idx()], self.kinds[slot.Idx()]) for slot in self.outputs]

    def run_chain(self, index):
        for node in self.chains[index]:
            kind = type(node).__name__.removesuffix("Node")
            seen = set()
            fields = {
                name: self.value(value, seen)
                for name, value in vars(node).items()
                if name not in ("out", "outs")
            }
            if kind == "Noop":
                continue
            given = run_node(kind, SimpleNamespace(**fields))
            from_all = frozenset({kind}).union(*seen)
            for out, value in zip(
                getattr(node, "outs", None) or [node.out],
                given if isinstance(given, list) else [given],
                strict=True,
            ):
                if isinstance(out, self.schema.Vid):
                    self.values[out.idx] = (int(value), from_all)
                else:
                    mx.eval(value)
                    self.tensors[out.idx], self.kinds[out.idx] = value, from_all

    def value(self, given, seen):
        """What a field says now; `seen` are the kinds of nodes that it depends on."""
        schema = self.schema
        if isinstance(given, list):
            return [self.value(each, seen) for each in given]
        if isinstance(given, schema.Tid):
            seen.add(self.kinds[given.idx])
            return self.tensors[given.idx]
        if isinstance(given, schema.Vid):
            value = self.values[given.idx]
            number, kinds = value if isinstance(value, tuple) else (value, frozenset())
            seen.add(kinds)
            return number
        if isinstance(given, schema.IntOrVid) and not given.is_vid:
            return max(-(2**31), min(given.literal, 2**31 - 1))
        if isinstance(given, (schema.IntOrVid, schema.FloatOrVid)):
            return self.value(given.vid, seen) if given.is_vid else given.literal
        if isinstance(given, schema.VidOrTid):
            return self.value(given.vid if given.is_vid else given.tid, seen)
        if isinstance(given, schema.IntOrVidOrTid):
            return (
                (given.literal, self.value(given.vid, seen), self.value(given.tid, seen))[
                    given.kind
                ]
                if given.kind
                else given.literal
            )
        return given


def mx_array(stored, shape, dtype):
    """An array of stored bytes."""
    flat = mx.array(np.frombuffer(stored, np.uint8))
    return (flat.astype(mx.bool_) if dtype == mx.bool_ else mx.view(flat, dtype)).reshape(shape)


SAME = {"Abs", "Arccos", "Arccosh", "Arcsin", "Arcsinh", "Arctan", "Arctanh", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Expm1",
        "Floor", "Log", "Log10", "Log1p", "Log2", "Reciprocal", "Rsqrt", "Sigmoid", "Sign", "Sin", "Sinh", "Sqrt", "Square",
        "Tan", "Tanh", "Trunc", "Contiguous"}  # fmt: skip
UNARY = {"Neg": "negative", "LogicalNot": "logical_not", "BitwiseInvert": "bitwise_invert"}
BINARY = {
    "Add": "add", "Atan2": "arctan2", "BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor",
    "Divide": "divide", "Equal": "equal", "Greater": "greater", "GreaterEqual": "greater_equal", "Less": "less",
    "LessEqual": "less_equal", "LogAddExp": "logaddexp", "LogicalAnd": "logical_and", "LogicalOr": "logical_or",
    "Maximum": "maximum", "Minimum": "minimum", "Multiply": "multiply", "NotEqual": "not_equal", "Power": "power",
    "Remainder": "remainder", "Subtract": "subtract",
}  # fmt: skip
REDUCED = {"All", "Any", "Max", "Mean", "Median", "Min", "Prod", "Std", "Sum", "Var"}
INTEGERS = {
    "AddInt": lambda a, b: a + b,
    "SubtractInt": lambda a, b: a - b,
    "MultiplyInt": lambda a, b: a * b,
    "FloorDivideInt": lambda a, b: a // b,
    "ModInt": lambda a, b: a % b,
}
SIMPLE = {
    "IdCopy": lambda f: f.x,
    "SymSize": lambda f: f.a.shape[f.dim],
    "ItemInt": lambda f: f.x.item(),
    "Silu": lambda f: f.x * mx.sigmoid(f.x),
    "Round": lambda f: mx.round(f.x, f.decimals),
    "AsType": lambda f: f.x.astype(DTYPES[f.scalar_type]),
    "Where": lambda f: mx.where(f.condition, f.x, f.y),
    "Clip": lambda f: mx.clip(f.x, f.a_min, f.a_max),
    "Addmm": lambda f: f.mat1 @ f.mat2 if f.bias is None else mx.addmm(f.bias, f.mat1, f.mat2, f.alpha, f.beta),
    "RMSNorm": lambda f: mx.fast.rms_norm(f.x, f.weight, f.eps),
    "LayerNorm": lambda f: mx.fast.layer_norm(f.x, f.weight, f.bias, f.eps),
    "Softmax": lambda f: mx.softmax(f.x, f.axis, precise=f.precise),
    "LogSumExp": lambda f: mx.logsumexp(f.x, f.axes, keepdims=f.keepdims),
    "Argmax": lambda f: mx.argmax(f.x, f.axis, keepdims=f.keepdims),
    "Argmin": lambda f: mx.argmin(f.x, f.axis, keepdims=f.keepdims),
    "Cumsum": lambda f: mx.cumsum(f.x, f.axis, reverse=f.reverse, inclusive=f.inclusive),
    "Sort": lambda f: mx.sort(f.x, f.axis),
    "Argsort": lambda f: mx.argsort(f.x, f.axis),
    # The order of what is partitioned is not said: sorted, it is one of the right ones.
    "Partition": lambda f: mx.sort(f.x, f.axis),
    "ArgPartition": lambda f: mx.argsort(f.x, f.axis),
    "ExpandDims": lambda f: mx.expand_dims(f.x, f.axis),
    "Squeeze": lambda f: mx.squeeze(f.x, [d for d in f.dims if f.x.shape[d] == 1]) if f.dims else mx.squeeze(f.x),
    "Reshape": lambda f: mx.reshape(f.x, f.shape),
    "Transpose": lambda f: mx.transpose(f.x, f.perm),
    "BroadcastTo": lambda f: mx.broadcast_to(f.x, broadcast_shape(f)),
    "Tile": lambda f: mx.tile(f.x, f.reps),
    "Repeat": lambda f: mx.repeat(f.x, f.repeats, f.axis),
    "Flip": lambda f: mx.flip(f.x, f.axes),
    "Roll": lambda f: mx.roll(f.x, f.shift, f.axes),
    "Concatenate": lambda f: mx.concatenate(f.tensors, f.axis),
    "Stack": lambda f: mx.stack(f.tensors, f.axis),
    "AsStrided": lambda f: mx.as_strided(f.x, f.shape, f.strides, f.offset),
    "Full": lambda f: mx.full(f.shape, f.v, DTYPES[f.scalar_type]),
    "FullLike": lambda f: mx.full_like(f.x, f.v, None if f.scalar_type is None else DTYPES[f.scalar_type]),
    "ARange": lambda f: mx.arange(f.start, f.stop, f.step, None if f.scalar_type is None else DTYPES[f.scalar_type]),
    "Tri": lambda f: mx.tri(f.n, f.m, f.k, DTYPES[f.scalar_type]),
    "Tril": lambda f: mx.tril(f.x, f.k),
    "Triu": lambda f: mx.triu(f.x, f.k),
    "Take": lambda f: mx.take(f.x, f.index, f.axis),
    "TakeAlongAxis": lambda f: mx.take_along_axis(f.x, f.indices, f.axis),
    "QuantizedMatmul": lambda f: mx.quantized_matmul(f.x, f.w, f.scales, f.biases, f.transpose, f.group_size, f.bits, f.mode),
    "GatherMm": lambda f: mx.gather_mm(f.a, f.b, f.lhs_indices, f.rhs_indices),
    "GatherQmm": lambda f: mx.gather_qmm(
        f.x, f.w, f.scales, f.biases, f.lhs_indices, f.rhs_indices, f.transpose, f.group_size, f.bits, f.mode
    ),
    "Dequantize": lambda f: mx.dequantize(
        f.w, f.scales, f.biases, f.group_size, f.bits, f.mode, f.global_scale,
        None if f.dtype is None else DTYPES[f.dtype],
    ),
    "Pad": lambda f: mx.pad(f.x, list(zip(f.pad_width[::2], f.pad_width[1::2])), f.mode, f.constant_value),
    "Sdpa": lambda f: mx.fast.scaled_dot_product_attention(
        f.q, f.k, f.v, scale=f.scale, mask="causal" if f.causal else f.mask
    ),
}  # fmt: skip


def broadcast_shape(f):
    """Where it says -1, the size stays."""
    own = [1] * (len(f.shape) - f.x.ndim) + list(f.x.shape)
    return [size if wanted == -1 else wanted for wanted, size in zip(f.shape, own)]


def gelu(f):
    x = f.x
    if f.approximate == "tanh":
        return 0.5 * x * (1 + mx.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))
    return 0.5 * x * (1 + mx.erf(x * 0.7071067812))


def rope(f):
    base = None if f.freqs is not None else f.base
    return mx.fast.rope(
        f.x,
        f.dims,
        traditional=f.traditional,
        base=base,
        scale=f.scale,
        offset=f.offset,
        freqs=f.freqs,
    )


def split(f):
    sizes = f.sizes
    if len(sizes) == 1:
        return mx.split(f.x, list(range(sizes[0], f.x.shape[f.axis], sizes[0])), f.axis)
    return mx.split(f.x, np.cumsum(sizes)[:-1].tolist(), f.axis)


def along(x, axis, part):
    """An index that is whole but for one dimension."""
    index = [slice(None)] * x.ndim
    index[axis] = part
    return tuple(index)


def part(f):
    size = f.x.shape[f.axis]
    if f.step < 0 and f.stop < -size:
        return f.x[along(f.x, f.axis, slice(f.start, None, f.step))]
    return f.x[along(f.x, f.axis, slice(f.start, f.stop, f.step))]


def slice_update(f):
    updated = mx.array(f.dst)
    if f.dst[along(f.dst, f.axis, slice(f.start, f.stop))].shape[f.axis]:
        updated[along(f.dst, f.axis, slice(f.start, f.stop, f.step))] = f.update
    return updated


def index_copy(f):
    updated = mx.array(f.dst)
    updated[along(f.dst, f.axis, f.indices)] = f.update
    return updated


def gather(f):
    others = [axis for axis in range(f.x.ndim) if axis not in f.axes]
    picked = mx.transpose(f.x, [*f.axes, *others])[tuple(f.indices)]
    shape = np.broadcast_shapes(*(index.shape for index in f.indices))
    return picked.reshape([*shape, *f.slice_sizes])


def scatter_add(f):
    grid = np.indices(f.indices.shape, sparse=True)
    index = [mx.array(places) for places in grid]
    index[f.axis] = f.indices
    return f.x.at[tuple(index)].add(f.updates)


def floor_divide(f):
    if mx.issubdtype(f.a.dtype, mx.inexact):
        return mx.floor_divide(f.a, f.b)
    return mx.floor(f.a.astype(mx.float32) / f.b.astype(mx.float32)).astype(f.a.dtype)


def convolution(kind, f):
    count, back = int(kind[-2]), "Transpose" in kind

    def each(name):
        numbers = tuple(getattr(f, f"{name}{axis}") for axis in AXES[count])
        return numbers[0] if count == 1 else numbers

    options = [each("stride"), each("padding"), each("dilation")]
    if back:
        options.append(each("output_padding"))
    function = getattr(mx, f"conv_transpose{count}d" if back else f"conv{count}d")
    return function(f.x, f.w, *options, f.groups)


MORE = {
    "Gelu": gelu, "Rope": rope, "Split": split, "Slice": part, "SliceUpdate": slice_update, "IndexCopy": index_copy,
    "Gather": gather, "ScatterAdd": scatter_add, "FloorDivide": floor_divide,
}  # fmt: skip


def run_node(kind, f):
    """What MLX makes of a node."""
    if kind in SAME:
        return getattr(mx, kind.lower())(f.x)
    if kind in UNARY:
        return getattr(mx, UNARY[kind])(f.x)
    if kind in BINARY:
        return getattr(mx, BINARY[kind])(f.a, f.b)
    if kind in REDUCED:
        more = {"ddof": f.ddof} if kind in ("Std", "Var") else {}
        return getattr(mx, kind.lower())(f.x, f.axes or None, keepdims=f.keepdims, **more)
    if kind in INTEGERS:
        return INTEGERS[kind](f.a, f.b)
    if kind.startswith("Conv") and kind.endswith("D"):
        return convolution(kind, f)
    known = SIMPLE.get(kind) or MORE.get(kind)
    if known is None:
        raise KeyError(f"no node {kind}")
    return known(f)


class Program:
    """A method of a `.pte`: calls of MLX's delegate, and between them portable operators, which PyTorch executes."""

    def __init__(self, path, method):
        from executorch.exir._serialize._program import deserialize_pte_binary
        from executorch.exir.schema import DataLocation

        file = deserialize_pte_binary(path.read_bytes())
        stored = file.named_data
        named = (
            {}
            if stored is None
            else {key: stored.buffers[entry.buffer_index] for key, entry in stored.pte_data.items()}
        )
        plan = next(plan for plan in file.program.execution_plan if plan.name == method)
        self.plan, self.buffers = plan, file.program.constant_buffer
        self.calls = []
        for delegate in plan.delegates:
            processed = delegate.processed
            assert processed.location == DataLocation.INLINE, "segments were moved back"
            self.calls.append(
                Payload(bytes(file.program.backend_delegate_data[processed.index].data), named)
            )

    def run(self, arguments):
        """The outputs, each with the kinds of nodes it depends on."""
        from executorch.exir.schema import DelegateCall, KernelCall

        values = dict(zip(self.plan.inputs, ((value, frozenset()) for value in arguments)))
        for step in self.plan.chains[0].instructions:
            step = step.instr_args
            if isinstance(step, DelegateCall):
                call = self.calls[step.delegate_index]
                given = [values[arg][0] for arg in step.args[: len(call.inputs)]]
                values.update(zip(step.args[len(call.inputs) :], call.run(given), strict=True))
            else:
                assert isinstance(step, KernelCall), f"an instruction {type(step).__name__}"
                self.kernel(step, values)
        return [values[output] for output in self.plan.outputs]

    def kernel(self, step, values):
        """A portable operator, on what its arguments are now."""
        import torch

        operator = self.plan.operators[step.op_index]
        space, _, name = operator.name.partition("::")
        function = getattr(getattr(getattr(torch.ops, space), name), operator.overload)
        seen, arguments, outs = [], {}, []
        for described, arg in zip(function._schema.arguments, step.args):
            if described.is_out:
                arguments[described.name] = torch.empty(0, dtype=self.dtype(arg))
                outs.append((arg, arguments[described.name]))
            else:
                arguments[described.name] = self.plain(arg, values, seen)
        function(**arguments)
        for arg, tensor in outs:
            values[arg] = (mx.array(tensor.numpy()), frozenset().union(*seen))

    def dtype(self, arg):
        """The dtype that a value is declared with."""
        import torch

        return getattr(torch, self.plan.values[arg].val.scalar_type.name.lower())

    def plain(self, arg, values, seen):
        """An argument as PyTorch takes it."""
        import torch

        if arg in values:
            value, kinds = values[arg]
            seen.append(kinds)
            return torch.from_numpy(np.array(value))
        value = self.plan.values[arg].val
        kind = type(value).__name__
        if kind == "Null":
            return None
        if kind in ("Int", "Bool", "Double", "String"):
            return next(iter(vars(value).values()))
        if kind == "IntList":
            return [self.plain(item, values, seen) for item in value.items]
        if kind == "Tensor" and value.data_buffer_idx:
            stored = bytearray(self.buffers[value.data_buffer_idx].storage)
            return torch.frombuffer(stored, dtype=self.dtype(arg)).reshape(value.sizes)
        if hasattr(value, "items"):
            return list(value.items)
        raise TypeError(f"an argument that is a {kind}")


def difference(found, wanted):
    """The worst difference, as a part of the largest magnitude."""
    found = np.array(found.astype(mx.float32) if found.dtype == mx.bfloat16 else found).astype(
        np.float64
    )
    wanted = wanted.astype(np.float64)
    assert found.shape == wanted.shape, f"{found.shape} instead of {wanted.shape}"
    same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0.0, np.abs(found - wanted))
    finite = np.abs(wanted[np.isfinite(wanted)])
    return float(np.max(apart, initial=0.0) / max(1e-6, float(np.max(finite, initial=0.0))))


def array(arrays, described):
    """An input or an output of a case."""
    if "array" not in described:
        return np.array(described["value"])
    stored = np.load(arrays.open(f"{described['array']}.npy"))
    if described.get("dtype") == "bfloat16":
        return (stored.astype(np.uint32) << 16).view(np.float32)
    return stored


def main():
    """Runs the programs that are named, or all of them."""
    mx.set_default_device(mx.cpu)
    chosen = sys.argv[1:]
    kinds, failed = {}, []
    for entry in json.loads((FIXTURES / "cases.json").read_text())["programs"]:
        if "refused" in entry or (chosen and entry["name"] not in chosen):
            continue
        for variant in entry["variants"]:
            if not variant.startswith("mlx"):
                continue
            name = f"{entry['name']}_{variant}"
            worst = 0.0
            tolerance = TOLERANCES.get(variant.partition("_")[2], 1e-5)
            arrays = zipfile.ZipFile(FIXTURES / f"{entry['name']}.npz")
            for method_name, method in entry["methods"].items():
                program = Program(FIXTURES / f"{name}.pte", method_name)
                for case in method["cases"]:
                    given = program.run(
                        [mx.array(array(arrays, value)) for value in case["inputs"]]
                    )
                    for at, ((found, through), described) in enumerate(
                        zip(given, case["outputs"], strict=True)
                    ):
                        apart = difference(found, array(arrays, described))
                        worst = max(worst, apart)
                        for kind in through:
                            uses, most = kinds.get((kind, variant), (0, 0.0))
                            kinds[kind, variant] = (uses + 1, max(most, apart))
                        if not apart <= tolerance:
                            label = (method.get("labels") or [f"output {at}"] * (at + 1))[at]
                            failed.append(f"{name}: {label} differs by {apart:.1e}")
            print(f"{name}: {worst:.1e}")
    for (kind, variant), (uses, worst) in sorted(
        kinds.items(), key=lambda item: (item[0][1], item[0][0])
    ):
        print(f"{variant:9} {kind:16} {worst:.1e} in {uses} outputs")
    if failed:
        sys.exit("\n".join(failed))


if __name__ == "__main__":
    main()
