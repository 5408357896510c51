"""From a torch network to a `.pte`, and what the program's methods take and give.

The signatures come from the exported graphs themselves (a symbolic size becomes -1), never from a
second, hand-typed description. Constant methods are metadata and do not appear in signatures.
"""

import contextlib
import copy
import hashlib
import json
import re
import subprocess
import sys
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import torch
from torch.export import export


@dataclass
class Method:
    """One entry point: a network, inputs to trace it with, which sizes may vary, and inputs for
    calibration."""

    network: torch.nn.Module
    inputs: tuple
    dynamic: tuple | None = None
    samples: tuple = ()


@dataclass
class Program:
    """A `.pte` to be: methods by name, constant methods, the backend and its options.

    `group` is how many weights of a linear layer share a scale when they become int4; `None`
    means one scale an output channel.
    """

    methods: dict
    backend: str
    quantize: str | None = None
    group: int | None = 32
    options: dict = field(default_factory=dict)
    constants: dict = field(default_factory=dict)
    schema_companion: bool = False


DTYPES = {
    torch.bool: "bool",
    torch.int8: "int8",
    torch.int16: "int16",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.uint8: "uint8",
    torch.float16: "float16",
    torch.float32: "float32",
    torch.float64: "float64",
    torch.bfloat16: "bfloat16",
}


def build(program):
    """The bytes of the program and its signatures by method."""
    from executorch.exir import to_edge_transform_and_lower

    exported = {name: traced(method, program) for name, method in program.methods.items()}
    signatures = {name: signature(graph) for name, graph in exported.items()}
    constants = dict(program.constants)
    if program.schema_companion:
        constants["get_model_schema"] = json.dumps(schema(exported), separators=(",", ":"))
    partitioner = partitioners(program.backend, program.options)
    with reproducible(program.backend):
        lowered = to_edge_transform_and_lower(
            exported, partitioner=[partitioner], constant_methods=constants or None
        )
        data = bytes(lowered.to_executorch().buffer)
    return data, signatures


def traced(method, program):
    """The method's graph, quantized as the program asks."""
    network = method.network
    if program.quantize == "8da4w" and program.group is None:
        network = calibrated(method, weight_qmin=-8, weight_qmax=7, is_dynamic=True)
    elif program.quantize in ("8da4w", "int4"):
        network = int4_weights(network, program.group, program.quantize == "8da4w")
    elif program.quantize == "int8":
        network = calibrated(method)
    return export(network, method.inputs, dynamic_shapes=method.dynamic, strict=False)


def int4_weights(network, group, dynamic_activations):
    """Linear layers with int4 weights; activations int8 a token at run time, or as they are."""
    from torchao.quantization import (
        Int8DynamicActivationIntxWeightConfig,
        IntxWeightOnlyConfig,
        quantize_,
    )
    from torchao.quantization.granularity import PerGroup

    def eligible(module, _name):
        return isinstance(module, torch.nn.Linear) and module.in_features % group == 0

    if dynamic_activations:
        config = Int8DynamicActivationIntxWeightConfig(
            weight_dtype=torch.int4, weight_granularity=PerGroup(group)
        )
    else:
        config = IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(group))
    network = copy.deepcopy(network)
    quantize_(network, config, eligible)
    return network


def calibrated(method, **options):
    """The network with quantized weights, a scale a channel, and int8 activations whose ranges
    come from samples, from seeded noise or, with `is_dynamic`, from the values at run time."""
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    config = get_symmetric_quantization_config(is_per_channel=True, **options)
    graph = export(method.network, method.inputs, dynamic_shapes=method.dynamic, strict=False)
    prepared = prepare_pt2e(copy.deepcopy(graph.module()), XNNPACKQuantizer().set_global(config))
    torch.manual_seed(7)
    noise = (tuple(noise_like(value) for value in method.inputs) for _ in range(4))
    for inputs in method.samples or noise:
        prepared(*inputs)
    return convert_pt2e(prepared)


def noise_like(value):
    """Random values for a calibration run; ids stay as they are."""
    return torch.randn_like(value) if value.is_floating_point() else value


def partitioners(backend, options):
    """The partitioner of a config backend. Imports are late: each backend brings its own needs."""
    if backend == "xnnpack":
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

        return XnnpackPartitioner(**options)
    if backend == "coreml":
        from executorch.backends.apple.coreml.compiler import CoreMLBackend
        from executorch.backends.apple.coreml.partition import CoreMLPartitioner

        return CoreMLPartitioner(compile_specs=CoreMLBackend.generate_compile_specs(**options))
    if backend == "vulkan":
        from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner

        return VulkanPartitioner(options)
    if backend == "mlx":
        from executorch.backends.mlx.partitioner import MLXPartitioner

        return MLXPartitioner()
    raise ValueError(f"no partitioner for {backend}: its exporter needs the vendor's SDK")


def signature(exported):
    """Inputs and outputs of an exported graph, in calling order."""
    nodes = {node.name: node for node in exported.graph.nodes}
    names = exported.graph_signature
    return {
        "inputs": [tensor(nodes[name].meta["val"]) for name in names.user_inputs],
        "outputs": [tensor(nodes[name].meta["val"]) for name in names.user_outputs],
    }


def tensor(value):
    """A config's tensor spec of a traced value."""
    shape = [size if isinstance(size, int) else -1 for size in value.shape]
    return {"shape": shape, "dtype": DTYPES[value.dtype]}


def schema(exported):
    """The `get_model_schema` companion: per method, every dimension's exact domain."""
    return {
        name: {
            "inputs": [domain(value, graph) for value in user_values(graph, "user_inputs")],
            "outputs": [domain(value, graph) for value in user_values(graph, "user_outputs")],
            "runtimeConstraints": [],
        }
        for name, graph in exported.items()
    }


def user_values(graph, side):
    """The traced values of a graph's inputs or outputs."""
    nodes = {node.name: node for node in graph.graph.nodes}
    return [nodes[name].meta["val"] for name in getattr(graph.graph_signature, side)]


def domain(value, graph):
    """One tensor of the companion: constants where a size is fixed, ranges where it may vary."""
    shape = []
    for size in value.shape:
        if isinstance(size, int):
            shape.append({"kind": "constant", "value": size})
        else:
            bounds = graph.range_constraints[size.node.expr]
            limits = {"min": int(bounds.lower), "max": int(bounds.upper), "step": 1}
            shape.append({"kind": "range", "range": limits})
    return {"kind": "Tensor", "dtype": DTYPES[value.dtype], "shape": shape}


@contextlib.contextmanager
def reproducible(backend):
    """While lowering: what the exporter would take from the clock, from chance or from the place of
    these scripts is fixed."""
    if backend == "coreml":
        with reproducible_coreml():
            yield
    elif backend == "mlx":
        with reproducible_mlx():
            yield
    else:
        yield


@contextlib.contextmanager
def reproducible_mlx():
    """The keys of weights begin with a digest of the graph's text, which names source files."""
    from executorch.backends.mlx import preprocess

    def sha256(text):
        return hashlib.sha256(re.sub(rb"# File: .*", b"", text))

    with mock.patch.object(preprocess, "hashlib", SimpleNamespace(sha256=sha256)):
        yield


@contextlib.contextmanager
def reproducible_coreml():
    """The date, the random identifiers and the map of debug handles are taken out or fixed."""
    from executorch.backends.apple.coreml import executorchcoreml
    from executorch.backends.apple.coreml.compiler import CoreMLBackend

    convert = CoreMLBackend._convert_to_mlmodel
    flatten = executorchcoreml.flatten_directory_contents

    def convert_without_traces(*arguments, **options):
        model = convert(*arguments, **options)
        model.user_defined_metadata.pop("com.github.apple.coremltools.conversion_date", None)
        # Without its source program the model is saved without a map of debug handles, which
        # is larger than the model.
        model._mil_program = None
        return model

    def flatten_with_fixed_identifiers(folder):
        fix_identifiers(Path(folder))
        return flatten(folder)

    with (
        mock.patch.object(CoreMLBackend, "_convert_to_mlmodel", convert_without_traces),
        mock.patch.object(
            executorchcoreml, "flatten_directory_contents", flatten_with_fixed_identifiers
        ),
    ):
        yield


def fix_identifiers(folder):
    """Random identifiers of a Core ML model replaced by ones that depend on its contents, and the
    maps inside its specification written in order."""
    from coremltools.proto import Model_pb2

    for path in folder.rglob("*.mlmodel"):
        specification = Model_pb2.Model.FromString(path.read_bytes())
        path.write_bytes(specification.SerializeToString(deterministic=True))
    contents = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".mlmodel", ".bin"):
            contents.update(path.read_bytes())

    def identifier(label):
        return str(uuid.uuid5(uuid.NAMESPACE_OID, label + contents.hexdigest()))

    for path in folder.rglob("Manifest.json"):
        manifest = json.loads(path.read_text())
        items = manifest["itemInfoEntries"]
        renamed = {old: identifier(item["path"]) for old, item in items.items()}
        entries = sorted((renamed[old], item) for old, item in items.items())
        manifest["itemInfoEntries"] = dict(entries)
        manifest["rootModelIdentifier"] = renamed[manifest["rootModelIdentifier"]]
        path.write_text(json.dumps(manifest, indent=4, sort_keys=True))
    metadata = folder / "metadata.json"
    fields = json.loads(metadata.read_text())
    fields["identifier"] = "executorch_" + identifier("model")
    metadata.write_text(json.dumps(fields))


def ensure_mlx_schema():
    """Generate the Python classes of MLX's FlatBuffer schema, which the wheel leaves out.

    The wheel has the generator and `flatc`. The generator ends with an error because the template
    of a C++ header is missing too; by then the Python files are there.
    """
    import executorch

    root = Path(next(iter(executorch.__path__)))
    folder = root / "backends" / "mlx" / "serialization"
    if (folder / "mlx_graph_schema.py").exists():
        return
    flatc = root / "data" / "bin" / "flatc"
    command = [sys.executable, str(folder / "generate.py"), "--flatc", str(flatc)]
    subprocess.run(command, capture_output=True, check=False)
    if not (folder / "mlx_graph_schema.py").exists():
        raise RuntimeError("could not generate the Python classes of the MLX schema")
