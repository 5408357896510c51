"""From small networks to `.pte` files, and what ExecuTorch's own runtime answers for them."""

import contextlib
import copy
import io
import json
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch.export import export

DTYPES = {
    getattr(torch, name): name
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8"),
        *("float16", "float32", "float64", "bfloat16"),
    )
}


class Ops(torch.nn.Module):
    """Several operators on the same inputs; every one is an output, under its name."""

    def __init__(self, operators, **parts):
        super().__init__()
        self.operators = operators
        for name, part in parts.items():
            setattr(self, name, part)
        self.with_self = bool(parts)

    def forward(self, *inputs):
        first = (self,) if self.with_self else ()
        outputs = {name: operator(*first, *inputs) for name, operator in self.operators.items()}
        return {
            name: tuple(output) if isinstance(output, tuple) else output
            for name, output in outputs.items()
        }


@dataclass
class Method:
    """One entry point: a network, the inputs of its cases (it is traced with the first), and which
    sizes may vary. `quantize` turns the network into the one that is exported."""

    network: torch.nn.Module
    cases: list
    dynamic: Any = None
    quantize: Callable | None = None
    strict: bool = False


@dataclass
class Program:
    """A `.pte` to be. `options` are the XNNPACK partitioner's; `None` means no delegate. `exporter` makes the
    lowered program by itself."""

    family: str
    methods: dict
    options: dict | None = None
    sequence: bool | list = False
    constants: dict = field(default_factory=dict)
    compile: dict = field(default_factory=dict)
    config: dict = field(default_factory=dict)
    bundle: bool = False
    onnx: bool = False
    transform: Callable | None = None
    exporter: Callable | None = None


PROGRAMS = {}
LARGE = {}
SKIPPED = {}


def skipped(what, why):
    """Says what no program has, though it would belong there."""
    SKIPPED[what] = why


def program(function):
    """Registers a function that returns a `Program`, under the function's name."""
    PROGRAMS[function.__name__] = function
    return function


def large(function):
    """The same, for the programs that are not committed."""
    LARGE[function.__name__] = function
    return function


def forward(family, network, *cases, dynamic=None, quantize=None, strict=False, **rest):
    """A program of one method."""
    method = Method(network, list(cases), dynamic, quantize, strict)
    return Program(family, {"forward": method}, **rest)


def seed(name):
    """The same chance for a program whichever programs are written."""
    torch.manual_seed(zlib.crc32(name.encode()))


@dataclass
class Built:
    """The bytes of a program and what its exporter said about it."""

    data: bytes
    weights: dict
    nodes: dict
    steps: dict
    operators: dict
    lowered: Any


@torch.no_grad()
def build(given):
    """Exports and lowers a program."""
    if given.exporter:
        steps, lower = {name: [None] for name in given.methods}, given.exporter
    else:
        exported = {name: traced(method) for name, method in given.methods.items()}
        steps = {name: output_steps(graph) for name, graph in exported.items()}
        if given.transform:
            exported = given.transform(exported)
        lower = lambda: lowered_from(given, exported)
    with captured_nodes() as nodes, without_containers():
        lowered = lower()
    plans = {plan.name: plan for plan in lowered.executorch_program.execution_plan}
    operators = {name: operator_names(plans[name]) for name in given.methods}
    return Built(
        bytes(lowered.buffer), external_data(lowered), node_counts(nodes), steps, operators, lowered
    )


def lowered_from(given, exported):
    """The program of these graphs, with a delegate if there are options for it."""
    from executorch.exir import (
        EdgeCompileConfig,
        ExecutorchBackendConfig,
        to_edge,
        to_edge_transform_and_lower,
    )

    constants = given.constants or None
    if given.options is None:
        check = EdgeCompileConfig(**{"_check_ir_validity": False, **given.compile})
        edge = to_edge(exported, constant_methods=constants, compile_config=check)
    else:
        edge = to_edge_transform_and_lower(
            exported,
            partitioner=[partitioner(given.options)],
            constant_methods=constants,
            compile_config=EdgeCompileConfig(**given.compile) if given.compile else None,
        )
    return edge.to_executorch(ExecutorchBackendConfig(**{**SMALL, **given.config}))


def traced(method):
    """The method's graph, quantized as it asks."""
    network, inputs = method.network.eval(), method.cases[0]
    if method.quantize:
        network = method.quantize(network, method)
    return export(network, inputs, dynamic_shapes=method.dynamic, strict=method.strict)


def partitioner(options):
    """XNNPACK's partitioner."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

    return XnnpackPartitioner(**options)


@contextlib.contextmanager
def captured_nodes():
    """While lowering: the delegate's graphs, as they are serialized."""
    from executorch.backends.xnnpack import xnnpack_preprocess

    graphs = []
    serialize = xnnpack_preprocess.serialize_xnnpack_binary

    def keep(graph, data):
        graphs.append(copy.deepcopy(graph))
        return serialize(graph, data)

    with mock.patch.object(xnnpack_preprocess, "serialize_xnnpack_binary", keep):
        yield graphs


SMALL = {"segment_alignment": 16}


@contextlib.contextmanager
def without_containers():
    """While writing: no description of the Python containers that a method takes and gives, which
    is as large as the rest of a small program."""
    from executorch.exir.emit import _emitter

    nothing = SimpleNamespace(to_str=lambda: "")
    flatten = SimpleNamespace(tree_flatten=lambda tree: ([], nothing))
    with mock.patch.object(_emitter, "ex_pytree", flatten):
        yield


def node_counts(graphs):
    """How many nodes of each kind the delegates have."""
    kinds = Counter(type(node.xnode_union).__name__ for graph in graphs for node in graph.xnodes)
    return dict(sorted(kinds.items()))


def operator_names(plan):
    """What the method calls outside delegates."""
    return sorted(
        f"{operator.name}.{operator.overload}" if operator.overload else operator.name
        for operator in plan.operators
    )


def external_data(lowered):
    """Data that goes beside the program, by file name."""
    files = getattr(lowered, "_tensor_data", None) or {}
    return {name: bytes(data) for name, data in files.items()}


def output_steps(exported):
    """For each output, the quantization step of the value it is, or is made of without weights."""
    steps = {}
    for node in exported.graph.nodes:
        target = str(node.target)
        if "dequantize_per_tensor" in target:
            steps[node.name] = node.args[1] if isinstance(node.args[1], float) else None
        elif "choose_qparams" not in target and "dequantize" not in target:
            found = [steps.get(other.name) for other in node.all_input_nodes]
            steps[node.name] = max((step for step in found if step), default=None)
    return [steps.get(name) for name in exported.graph_signature.user_outputs]


def run(given, built, name):
    """What the runtime answers, case by case: the arrays, and what a test has to know of them."""
    from executorch.extension.pybindings import portable_lib

    portable_lib._unsafe_reset_threadpool(1)
    arrays, methods = {}, {}
    networks = copy.deepcopy({name: method.network for name, method in given.methods.items()})
    for method_name, method in given.methods.items():
        operators, labels = built.operators[method_name], output_labels(method)
        methods[method_name] = {"operators": operators, "labels": labels, "cases": []}
    call = loaded(given, built)
    for method_name, number in calls(given):
        method, about = given.methods[method_name], methods[method_name]
        if not given.sequence:
            call = loaded(given, built)
        inputs = method.cases[number]
        key = f"{number}" if len(given.methods) == 1 else f"{method_name}{number}"
        values = flattened(inputs)
        said = [describe(arrays, f"{key}i{i}", value) for i, value in enumerate(values)]
        answers = call(method_name, tuple(copies(values)))
        outputs = [describe(arrays, f"{key}o{i}", value) for i, value in enumerate(answers)]
        for output, step in zip(outputs, built.steps[method_name], strict=True):
            if step:
                output["step"] = step
        if not method.quantize:
            with torch.no_grad():
                wanted = flattened(networks[method_name](*copy.deepcopy(inputs)))
            differences(arrays, key, wanted, answers, outputs, name, about["labels"])
        about["cases"].append({"inputs": said, "outputs": outputs})
    return arrays, methods


def loaded(given, built):
    """The program in the runtime, ready to be called by method."""
    from executorch.extension.pybindings import portable_lib
    from executorch.runtime import Runtime

    if isinstance(given.sequence, list):
        # Here methods share the state that they have in common.
        program = Runtime.get().load_program(built.data)
        methods = {name: program.load_method(name) for name in given.methods}
        return lambda name, inputs: methods[name].execute(inputs)
    weights = next(iter(built.weights.values()), None)
    return portable_lib._load_for_executorch_from_buffer(built.data, weights).run_method


def calls(given):
    """Methods and the numbers of their cases, in the order in which they are called."""
    if isinstance(given.sequence, list):
        so_far = Counter()
        for name in given.sequence:
            yield name, so_far[name]
            so_far[name] += 1
    else:
        for name, method in given.methods.items():
            yield from ((name, number) for number in range(len(method.cases)))


def flattened(values):
    """Inputs or outputs in the order of the program's own."""
    return torch.utils._pytree.tree_leaves(values)


def copies(values):
    """So that no call sees what another wrote."""
    return [
        value.clone(memory_format=torch.preserve_format)
        if isinstance(value, torch.Tensor)
        else value
        for value in values
    ]


def output_labels(method):
    """Names for outputs, where the network gives them names."""
    operators = getattr(method.network, "operators", None)
    if operators is None:
        return []
    with torch.no_grad():
        result = copy.deepcopy(method.network)(*method.cases[0])
    labels = []
    for name, value in result.items():
        count = len(flattened(value))
        labels += [name] if count == 1 else [f"{name}[{i}]" for i in range(count)]
    return labels


DIFFERENCES = {}
TOLERANCES = {torch.float16: 4e-3, torch.bfloat16: 3e-2}


def differences(arrays, key, wanted, answers, outputs, name, labels):
    """Where the runtime's answer is not the network's own, that one is kept too."""
    for i, (want, got, output) in enumerate(zip(wanted, answers, outputs, strict=True)):
        if not isinstance(want, torch.Tensor):
            error = abs(want - got)
        elif want.shape != got.shape or want.dtype != got.dtype:
            error = f"{want.dtype} {list(want.shape)} became {got.dtype} {list(got.shape)}"
        else:
            error = distance(want, got)
        tolerance = TOLERANCES.get(getattr(got, "dtype", None), 1e-4)
        if isinstance(error, str) or error > tolerance:
            DIFFERENCES[(name, labels[i] if labels else f"output {i}", key)] = error
            kept = describe(arrays, f"{key}n{i}", want)
            output["network"] = kept.get("array", kept.get("value"))


def distance(want, got):
    """The largest relative difference, or how many whole numbers differ; what is not a number must
    be so on both sides."""
    if not want.numel():
        return 0.0
    if not want.is_floating_point():
        return float((want != got).sum())
    want, got = want.double(), got.double()
    same = (want == got) | (want.isnan() & got.isnan())
    error = (want - got).abs() / want.abs().clamp(min=1.0)
    error = torch.where(same, torch.zeros_like(error), error)
    return float(error.nan_to_num(float("inf"), float("inf")).max())


def describe(arrays, key, value):
    """Keeps a value under a name, and says what it is."""
    if not isinstance(value, torch.Tensor):
        return {"value": value}
    arrays[key] = to_numpy(value)
    said = {"array": key, "shape": list(value.shape)}
    if value.dtype != torch.float32:
        said["dtype"] = DTYPES[value.dtype]
    if value.dim() == 4 and not value.is_contiguous() and is_channels_last(value):
        said["dim_order"] = [0, 2, 3, 1]
    return said


def is_channels_last(value):
    """Whether the value lies in memory with its channels innermost."""
    return value.is_contiguous(memory_format=torch.channels_last)


def to_numpy(value):
    """The array in logical order; bfloat16 as its bits."""
    value = value.detach().contiguous()
    return value.view(torch.uint16).numpy() if value.dtype == torch.bfloat16 else value.numpy()


def write(name, given, folder):
    """Writes one program with its arrays; returns its entry of `cases.json`."""
    built = build(given)
    arrays, methods = run(given, built, name)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    entry = {"name": name, "file": f"{name}.pte", "family": given.family}
    if given.sequence:
        entry["sequence"] = given.sequence
    if given.bundle:
        entry["file"] = f"{name}.bpte"
    (folder / entry["file"]).write_bytes(bundle(built, given) if given.bundle else built.data)
    for data in built.weights.values():
        entry["data"] = f"{name}.ptd"
        (folder / f"{name}.ptd").write_bytes(data)
    if given.onnx:
        entry["onnx"] = f"{name}.onnx"
        save_onnx(given.methods["forward"], folder / entry["onnx"])
    if given.constants:
        entry["constants"] = given.constants
    save_arrays(folder / f"{name}.npz", arrays)
    if built.nodes:
        entry["xnnpack"] = built.nodes
    entry["methods"] = methods
    return entry


def save_onnx(method, path):
    """The network of a method as ONNX; a quantized one with the quantizations as operators."""
    network = method.network.eval()
    names = [f"input_{i}" for i in range(len(method.cases[0]))]
    options = {"dynamo": False, "opset_version": 17}
    if method.quantize:
        network = method.quantize(network, method)
        options = {"dynamo": True, "opset_version": 18, "external_data": False}
    elif method.dynamic:
        options["dynamic_axes"] = {
            name: {axis: size.__name__ for axis, size in sizes.items()}
            for name, sizes in zip(names, method.dynamic, strict=True)
        }
    with contextlib.redirect_stdout(io.StringIO()):
        torch.onnx.export(
            network,
            method.cases[0],
            str(path),
            input_names=names,
            output_names=["output"],
            **options,
        )


def bundle(built, given):
    """The program with its cases inside."""
    from executorch.devtools import BundledProgram
    from executorch.devtools.bundled_program.config import MethodTestCase, MethodTestSuite
    from executorch.devtools.bundled_program.serialize import (
        serialize_from_bundled_program_to_flatbuffer,
    )

    call = loaded(given, built)
    suites = [
        MethodTestSuite(
            name,
            [MethodTestCase(list(case), call(name, tuple(copies(case)))) for case in method.cases],
        )
        for name, method in given.methods.items()
    ]
    bundled = BundledProgram(built.lowered, suites)
    return bytes(serialize_from_bundled_program_to_flatbuffer(bundled))


def save_arrays(path, arrays):
    """An `.npz` as small as can be: that is half the size of numpy's own for tiny arrays."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.save(content, array)
            file.writestr(zipfile.ZipInfo(f"{name}.npy"), content.getvalue(), zipfile.ZIP_DEFLATED)


def save(entries, folder):
    """Brings `cases.json` up to date: one line a case, in the order of the programs."""
    path = Path(folder) / "cases.json"
    known = {}
    if path.exists():
        known = {entry["name"]: entry for entry in json.loads(path.read_text())["programs"]}
    known.update({entry["name"]: entry for entry in entries})
    order = {name: i for i, name in enumerate([*PROGRAMS, *LARGE])}
    kept = sorted((e for e in known.values() if e["name"] in order), key=lambda e: order[e["name"]])
    entries = ",\n".join(dumped(entry) for entry in kept)
    path.write_text(f'{{"versions": {json.dumps(versions())}, "programs": [\n{entries}\n]}}\n')


def dumped(entry):
    """A program's JSON, with a line for each case."""
    entry = copy.deepcopy(entry)
    cases = []
    for method in entry["methods"].values():
        for i, case in enumerate(method["cases"]):
            method["cases"][i] = f"case {len(cases)}"
            cases.append(json.dumps(case, separators=(",", ":")))
    text = json.dumps(entry, separators=(",", ":"))
    for i, case in enumerate(cases):
        text = text.replace(f'"case {i}"', f"\n{case}", 1)
    return text


def versions():
    """What wrote the programs."""
    from importlib.metadata import version

    return {name: version(name) for name in ("executorch", "torch", "torchao")}
