"""Building one generated case: a model, three sets of inputs, what is expected of them.

A dimension has a size for each set, so that open dimensions differ between runs of one session.
What is expected comes from ONNX Runtime without optimisations and from the reference evaluator of
the `onnx` package; `known.json` says which of them is wrong where they disagree.
"""

import json
import sys
import warnings
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "conformance"))
from generate import DTYPES, all_nodes, write_value  # noqa: E402

SETS = 3
# Larger answers are not kept: cases are many.
MAX_ELEMENTS = 20_000
FLOATS = ("float32", "float16", "float64")
INTEGERS = ("int64", "int32", "int8", "uint8", "int16", "uint16", "uint32", "uint64")
CODES = {name: code for code, name in DTYPES.items()}
KNOWN = Path(__file__).resolve().parent / "known.json"


class Skip(Exception):
    """A combination that makes no valid model."""


class Dim:
    """A dimension: its size in each set, and its name if the model leaves it open."""

    def __init__(self, sizes, name=None):
        self.sizes = (sizes,) * SETS if isinstance(sizes, int) else tuple(int(size) for size in sizes)
        self.name = name

    def __repr__(self):
        return f"{self.name or ''}{self.sizes}"

    def __eq__(self, other):
        return self.sizes == other.sizes

    def __hash__(self):
        return hash(self.sizes)

    @property
    def is_one(self):
        return all(size == 1 for size in self.sizes)

    @property
    def is_constant(self):
        return len(set(self.sizes)) == 1

    def map(self, function, *others):
        return Dim([function(*sizes) for sizes in zip(self.sizes, *(other.sizes for other in others))])


def fixed(*sizes):
    return [Dim(size) for size in sizes]


class Build:
    """A case while it is built. All choices come from `rng`."""

    def __init__(self, rng, opset):
        self.rng = rng
        self.opset = opset
        self.label = ""
        self.inputs = []
        self.initializers = []
        self.nodes = []
        self.outputs = []
        self.names = 0
        self.symbols = 0
        self.contrib = False
        self.rtol = 1e-3
        self.atol = 1e-7
        # Whether an answer may hang on the last bit of an input.
        self.check_stability = False

    # ---- choices ----

    def pick(self, *options):
        return options[int(self.rng.integers(len(options)))]

    def chance(self, part):
        return self.rng.random() < part

    def between(self, low, high):
        """A whole number, both ends included."""
        return int(self.rng.integers(low, high + 1))

    def dim(self, low=1, high=5, open_part=0.25):
        if self.chance(open_part):
            self.symbols += 1
            sizes = [self.between(low, high) for _ in range(SETS)]
            return Dim(sizes, f"n{self.symbols}")
        return Dim(self.between(low, high))

    def dims(self, rank, low=1, high=5, open_part=0.25):
        return [self.dim(low, high, open_part) for _ in range(rank)]

    def axis(self, rank):
        """An axis of so many, from either end."""
        axis = self.between(0, rank - 1)
        return axis - rank if self.chance(0.4) else axis

    # ---- values ----

    def values(self, dtype, kind=None):
        """A function that makes values of a dtype for a shape."""
        if dtype == "bool":
            return lambda rng, shape, _: rng.random(shape) < 0.5
        if dtype in FLOATS:
            return float_values(dtype, kind or self.pick("normal", "normal", "grid", "wide"))
        return integer_values(dtype, kind or self.pick("small", "small", "any"))

    def input(self, dtype, dims, values=None, kind=None):
        name = f"x{len(self.inputs)}"
        self.inputs.append((name, dtype, list(dims), values or self.values(dtype, kind)))
        return name

    def stored(self, array, dtype=None):
        array = np.array(array, dtype=dtype) if dtype else np.asarray(array)
        name = self.fresh("c")
        if self.chance(0.8):
            self.initializers.append(numpy_helper.from_array(array, name))
        else:
            tensor = numpy_helper.from_array(array, name)
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        return name

    def weights(self, dtype, shape, kind=None):
        return self.stored(self.values(dtype, kind)(self.rng, tuple(shape), 0).astype(dtype))

    def given(self, array, stored_part=0.75):
        """A small tensor that the model stores or takes; `array` may be one for each set."""
        arrays = array if isinstance(array, list) and isinstance(array[0], np.ndarray) else [array] * SETS
        arrays = [np.asarray(array) for array in arrays]
        same = all(np.array_equal(arrays[0], other) for other in arrays)
        if same and self.chance(stored_part):
            return self.stored(arrays[0])
        sizes = list(zip(*(array.shape for array in arrays)))
        dims = [Dim(size, None if len(set(size)) == 1 else self.fresh("m")) for size in sizes]
        return self.input(str(arrays[0].dtype), dims, lambda _rng, _shape, number: arrays[number])

    def shape_of(self, dims, stored_part=0.75):
        arrays = [np.array([dim.sizes[number] for dim in dims], np.int64) for number in range(SETS)]
        return self.given(arrays, stored_part)

    # ---- the graph ----

    def fresh(self, prefix):
        self.names += 1
        return f"{prefix}{self.names}"

    def node(self, operator, inputs, outputs=1, domain="", **attributes):
        made = [self.fresh("t") for _ in range(outputs)] if isinstance(outputs, int) else outputs
        attributes = {key: value for key, value in attributes.items() if value is not None}
        inputs = list(inputs)
        while inputs and not inputs[-1]:
            inputs.pop()
        if domain:
            self.contrib = True
        self.nodes.append(
            helper.make_node(operator, inputs, made, name=self.fresh("node_"), domain=domain, **attributes)
        )
        return made[0] if len(made) == 1 else made

    def output(self, *names):
        self.outputs.extend(name for name in names if name)

    def model(self):
        inputs = []
        for name, dtype, dims, _ in self.inputs:
            shape = [dim.name or dim.sizes[0] for dim in dims]
            inputs.append(helper.make_tensor_value_info(name, CODES[dtype], shape))
        outputs = [onnx.ValueInfoProto(name=name) for name in self.outputs]
        graph = helper.make_graph(self.nodes, "generated", inputs, outputs, self.initializers)
        imports = [helper.make_opsetid("", self.opset)]
        if self.contrib:
            imports.append(helper.make_opsetid("com.microsoft", 1))
        ir_version = 8 if self.opset < 19 else 10
        model = helper.make_model(graph, opset_imports=imports, ir_version=ir_version)
        return onnx.shape_inference.infer_shapes(model, data_prop=True)

    def sets(self):
        made = []
        for number in range(SETS):
            values = {}
            for name, dtype, dims, make in self.inputs:
                shape = tuple(dim.sizes[number] for dim in dims)
                array = np.asarray(make(self.rng, shape, number)).astype(dtype)
                if array.shape != shape:
                    raise Skip(f"{name} is of shape {array.shape}, not {shape}")
                values[name] = array
            made.append(values)
        return made


def float_values(dtype, kind):
    info = np.finfo(dtype)

    def make(rng, shape, _):
        match kind:
            case "normal":
                values = rng.standard_normal(shape)
            case "wide":
                values = rng.standard_normal(shape) * 8
            case "grid":
                values = rng.integers(-16, 17, shape) / 4
            case "ones":
                values = rng.integers(-2, 3, shape)
            case "positive":
                values = rng.random(shape) * 4 + 0.125
            case "unit":
                values = rng.random(shape) * 2 - 1
            case "probability":
                values = rng.random(shape)
            case "large":
                values = rng.choice([-1, 1], shape) * np.exp(rng.random(shape) * np.log(float(info.max)) * 0.99)
            case "very negative":
                values = -10 - rng.random(shape) * 110
            case "very positive":
                values = 10 + rng.random(shape) * 110
            case "tiny":
                values = rng.standard_normal(shape) * 1e-6
            case "extreme":
                special = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 88.8, -88.8, 104.0, -104.0]
                special += [float(info.max), -float(info.max), float(info.tiny), -float(info.tiny) / 4, 1e-3, 20.0]
                values = rng.choice(special, shape)
            case "infinite":
                special = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1.5, 2.0, -0.25]
                values = rng.choice(special, shape)
            case _:
                raise ValueError(kind)
        # ONNX Runtime may set denormal numbers to zero or not: no case is about that.
        with np.errstate(all="ignore"):
            return np.asarray(values).astype(dtype)

    return make


def integer_values(dtype, kind):
    info = np.iinfo(dtype)

    def make(rng, shape, _):
        if kind == "any":
            low, high = max(int(info.min), -100), min(int(info.max), 100)
        elif kind == "positive":
            low, high = 1, 7
        elif kind == "full":
            low, high = int(info.min), int(info.max)
        elif kind == "bits":
            low, high = 0, 7
        else:
            low, high = max(int(info.min), -5), 5
        return rng.integers(low, high, shape, dtype=dtype, endpoint=True)

    return make


# ---- what is expected ----


def options():
    chosen = onnxruntime.SessionOptions()
    chosen.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    chosen.intra_op_num_threads = 1
    chosen.inter_op_num_threads = 1
    chosen.log_severity_level = 4
    return chosen


def by_runtime(model, sets):
    session = onnxruntime.InferenceSession(model.SerializeToString(), options(), ["CPUExecutionProvider"])
    return [session.run(None, values) for values in sets]


def by_reference(model, sets):
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        evaluator = ReferenceEvaluator(model)
        return [[np.asarray(value) for value in evaluator.run(None, values)] for values in sets]


def attempt(evaluate, model, sets):
    try:
        return evaluate(model, sets), None
    except Exception as error:  # noqa: BLE001: whatever it is, the case is told by the other one
        return None, f"{type(error).__name__}: {error}"[:300]


def near(left, right, rtol, atol):
    """Whether two answers are the same up to rounding, by the rules of the conformance test."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    if left.dtype.kind not in "fV" and left.dtype != ml_dtypes.bfloat16:
        return np.array_equal(left, right)
    epsilon = {2: 2 * 2.0**-10, 4: 8 * 2.0**-23, 8: 8 * 2.0**-52}[left.dtype.itemsize]
    left, right = left.astype(np.float64), right.astype(np.float64)
    finite = np.abs(right[np.isfinite(right)])
    absolute = max(atol, epsilon * (finite.max() if finite.size else 0))
    with np.errstate(all="ignore"):
        same = (left == right) | (np.isnan(left) & np.isnan(right))
        close = np.isfinite(right) & (np.abs(left - right) <= absolute + rtol * np.abs(right))
    return bool(np.all(same | close))


def all_near(left, right, build):
    return all(
        near(one, other, build.rtol, build.atol)
        for these, those in zip(left, right)
        for one, other in zip(these, those)
    )


def is_stable(build, model, sets, answers):
    """Whether the answers stay what they are when inputs change by their last bits."""
    moved = []
    for values in sets:
        moved.append(
            {
                name: moved_slightly(value) if value.dtype.kind == "f" else value
                for name, value in values.items()
            }
        )
    others, _ = attempt(by_runtime, model, moved)
    return others is not None and all_near(others, answers, build)


def is_conditioned(build, model, sets, answers):
    """Whether the answers stay what they are when what is normalised changes by its last bits.

    Rows of equal numbers stay equal when inputs change, but not when the mean is rounded: what is left
    is then divided by nearly nothing."""
    noisy = onnx.ModelProto()
    noisy.CopyFrom(model)
    del noisy.graph.node[:]
    for number, node in enumerate(model.graph.node):
        original, node = node, onnx.NodeProto()
        node.CopyFrom(original)
        if node.op_type == "LayerNormalization":
            noise, part, moved = (f"{name}{number}_{node.input[0]}" for name in ("noise", "part", "moved"))
            attributes = {"low": -5e-7, "high": 5e-7, "seed": float(number)}
            noisy.graph.node.append(helper.make_node("RandomUniformLike", [node.input[0]], [noise], **attributes))
            noisy.graph.node.append(helper.make_node("Mul", [node.input[0], noise], [part]))
            noisy.graph.node.append(helper.make_node("Add", [node.input[0], part], [moved]))
            node.input[0] = moved
        noisy.graph.node.append(node)
    others, _ = attempt(by_runtime, noisy, sets)
    return others is not None and all_near(others, answers, build)


def is_between_steps(build, model, sets, answers):
    """Whether no product lies so near the middle of two steps that the order of factors decides."""
    for factor in (1 - 1e-6, 1 + 1e-6):
        moved = onnx.ModelProto()
        moved.CopyFrom(model)
        scale = helper.make_tensor("moved_by", TensorProto.FLOAT, [], [factor])
        moved.graph.initializer.append(scale)
        del moved.graph.node[:]
        for number, node in enumerate(model.graph.node):
            changed = onnx.NodeProto()
            changed.CopyFrom(node)
            if node.op_type == "QLinearMatMul":
                changed.input[6] = f"moved{number}_{node.input[6]}"
                moved.graph.node.append(helper.make_node("Mul", [node.input[6], "moved_by"], [changed.input[6]]))
            moved.graph.node.append(changed)
        others, _ = attempt(by_reference, moved, sets)
        if others is None or not all_near(others, answers, build):
            return False
    return True


def moved_slightly(value):
    """Each number larger or smaller by some units in its last place."""
    signs = np.where(np.arange(value.size) % 2, 1, -1).reshape(value.shape)
    return (value * (1 + signs * 3e-6)).astype(value.dtype)


def load_known():
    return json.loads(KNOWN.read_text())


def faults(known, build, model):
    """The entries of known.json that are of this case."""
    operators = {node.op_type for node in all_nodes(model)}
    for entry in known:
        named = entry.get("operators")
        if named and not operators.intersection(named):
            continue
        if entry.get("label") and not any(part in build.label for part in entry["label"]):
            continue
        yield entry


def write(build, directory, known):
    """Writes the case if it is one; returns what it is: its label, and how it is told."""
    model = build.model()
    for value in [*model.graph.input, *model.graph.output]:
        if value.type.tensor_type.elem_type not in DTYPES:
            raise Skip(f"no dtype of {value.name}")
    sets = build.sets()
    runtime, runtime_said = attempt(by_runtime, model, sets)
    reference, reference_said = attempt(by_reference, model, sets)
    if reference is not None and not is_typed(model, reference):
        reference, reference_said = None, "other dtypes than the model says"
    if runtime_said and "INVALID_GRAPH" in runtime_said or "Type Error" in (runtime_said or ""):
        raise Skip(f"no valid model: {runtime_said}")
    if runtime is None and reference is None:
        raise Skip(f"neither runs it: {runtime_said}; {reference_said}")
    sizes = [value.size for answer in runtime or reference for value in answer]
    if sum(sizes) > MAX_ELEMENTS:
        raise Skip("too large")
    if build.check_stability and (runtime is None or not is_stable(build, model, sets, runtime)):
        raise Skip("not stable")
    operators = {node.op_type for node in model.graph.node}
    is_normal = build.check_stability and "LayerNormalization" in operators
    if is_normal and not is_conditioned(build, model, sets, runtime):
        raise Skip("differences of equal numbers are divided")
    is_product = runtime is None and "QLinearMatMul" in operators
    if is_product and not is_between_steps(build, model, sets, reference):
        raise Skip("half way between two steps")
    told, first, other = choose(build, model, runtime, reference, known)
    directory.mkdir(parents=True)
    (directory / "model.onnx").write_bytes(model.SerializeToString(deterministic=True))
    inputs = [[values[name] for name, *_ in build.inputs] for values in sets]
    described = describe(build, model, inputs, first, directory, "output")
    described["told"] = told
    # What an engine answers otherwise is no find, if known.json says so; what it refuses it must not answer.
    answered = [entry for entry in faults(known, build, model) if not entry.get("refused")]
    described["known_of"] = sorted({entry["wrong"] for entry in answered})
    (directory / "case.json").write_text(json.dumps(described))
    if other is not None:
        described = describe(build, model, inputs, other, directory, "other")
        (directory / "other.json").write_text(json.dumps(described))
    return told


def choose(build, model, runtime, reference, known):
    """How the case is told, the answers expected, and others that are as good."""
    wrong = {entry["wrong"] for entry in faults(known, build, model)}
    if runtime is None:
        if "reference" in wrong:
            raise Skip("only the reference runs it, and is wrong")
        return "reference", reference, None
    if reference is None:
        if "ort" in wrong:
            raise Skip("only ONNX Runtime runs it, and is wrong")
        return "ort", runtime, None
    if all_near(runtime, reference, build):
        return "both", reference, None
    if {"reference", "ort"} <= wrong:
        raise Skip("both are wrong, and differ")
    if "reference" in wrong:
        return "ort", runtime, None
    if "ort" in wrong:
        return "reference", reference, None
    return "disputed", reference, runtime


def is_typed(model, answers):
    types = [helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type) for value in model.graph.output]
    return all(value.dtype == dtype for answer in answers for value, dtype in zip(answer, types))


def describe(build, model, inputs, answers, directory, prefix):
    description = {
        "kind": "generated",
        "label": build.label,
        "opset": build.opset,
        "operators": sorted({node.op_type for node in all_nodes(model)}),
        "rtol": build.rtol,
        "atol": build.atol,
        "random": False,
        "sets": [],
    }
    for number, (given, expected) in enumerate(zip(inputs, answers)):
        description["sets"].append(
            {
                "inputs": values(model.graph.input, given, f"{number}_input", directory),
                "outputs": values(model.graph.output, expected, f"{number}_{prefix}", directory),
            }
        )
    return description


def values(infos, arrays, prefix, directory):
    pairs = enumerate(zip(infos, arrays))
    return [write_value(info, array, directory, f"{prefix}_{index}.bin") for index, (info, array) in pairs]
