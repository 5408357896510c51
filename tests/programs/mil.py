"""ML Programs built operation by operation, as payloads of otherwise normal `.pte` files.

ExecuTorch's exporter never writes most operations of Core ML. Here coremltools' builder does; a stand-in of the same
signature is exported and delegated whole, and the delegate's bytes are the built program's, packed by ExecuTorch's own
packer.
"""

import contextlib
import io
from collections.abc import Callable
from dataclasses import dataclass, field

import coremltools as ct
import torch
from coremltools.converters.mil.mil import Builder as mb
from coremltools.converters.mil.mil import types
from harness import SMALL, Method, Ops, flattened, without_containers

NETWORKS = {}
KINDS = {torch.float32: types.fp32, torch.float16: types.fp16, torch.int32: types.int32}
# What Core ML's functions can give; other values are given as float32.
GIVEN = (types.fp32, types.int32)


@dataclass
class Mil:
    """Operations on the same inputs: for each label how Core ML's builder writes it, and what it should give."""

    operators: dict
    cases: list
    target: str = "iOS17"
    variants: tuple = ("coreml_fp32",)
    sequence: bool = False
    halves: Callable | None = None
    methods: dict = field(init=False)

    def __post_init__(self):
        wanted = {label: given(expected) for label, (_, expected) in self.operators.items()}
        self.methods = {"forward": Method(Ops(wanted), self.cases)}


def network(function):
    """Registers a function that returns a `Mil`, under the function's name."""
    NETWORKS[function.__name__] = function
    return function


def noise(*shape):
    """Random values."""
    return torch.randn(*shape)


def array(*shape, scale=1.0):
    """A random constant."""
    return (torch.randn(*shape) * scale).numpy()


def whole(most, *shape):
    """Random integers from 0 up to this one."""
    return torch.randint(0, most, shape, dtype=torch.int32)


def given(expected):
    """The function, with outputs of dtypes that Core ML gives."""

    def plain(value):
        return value if value.dtype == torch.int32 else value.to(torch.float32)

    def function(*inputs):
        found = expected(*inputs)
        return tuple(map(plain, found)) if isinstance(found, tuple) else plain(found)

    return function


class StandIn(torch.nn.Module):
    """Gives outputs of the same shapes and dtypes, and takes the same inputs."""

    def __init__(self, outputs):
        super().__init__()
        self.outputs = [(list(output.shape), output.dtype) for output in outputs]

    def forward(self, *inputs):
        start = sum(value.reshape(-1)[0].to(torch.float32) for value in inputs)
        return tuple(start.to(kind).expand(shape).clone() for shape, kind in self.outputs)


def build(network, variant):
    """The `.pte`, and what it calls outside of the delegate (nothing)."""
    from unittest import mock

    from executorch.backends.apple.coreml.compiler import CoreMLBackend
    from executorch.exir import ExecutorchBackendConfig, to_edge
    from executorch.exir.backend.backend_api import to_backend

    inputs = network.cases[0]
    outputs = flattened(network.methods["forward"].network(*inputs))
    target = getattr(ct.target, network.target)
    model = ct.convert(
        program(network, target),
        source="milinternal",
        convert_to="mlprogram",
        pass_pipeline=ct.PassPipeline.EMPTY,
        minimum_deployment_target=target,
        skip_model_load=True,
    )
    result = CoreMLBackend.preprocess_model(model, CoreMLBackend.MODEL_TYPE.MODEL)
    preprocess = mock.patch.object(CoreMLBackend, "preprocess", lambda *_: result)
    quiet = contextlib.redirect_stdout(io.StringIO())
    with torch.no_grad(), quiet, without_containers(), preprocess:
        edge = to_edge(torch.export.export(StandIn(outputs), inputs))
        lowered = to_backend("CoreMLBackend", edge.exported_program(), [])

        class Whole(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.lowered = lowered

            def forward(self, *inputs):
                return self.lowered(*inputs)

        built = to_edge(torch.export.export(Whole(), inputs)).to_executorch(
            ExecutorchBackendConfig(**SMALL, extract_delegate_segments=True)
        )
    assert built.executorch_program.execution_plan[0].delegates, "nothing was delegated"
    return bytes(built.buffer), []


def program(network, target):
    """All operations in one function."""
    specs = [
        mb.TensorSpec(shape=tuple(value.shape), dtype=KINDS[value.dtype])
        for value in network.cases[0]
    ]
    names = [f"x{at}" for at in range(len(specs))]
    operators = network.operators

    def function(*inputs):
        outputs = []
        for write, _ in operators.values():
            found = write(*inputs)
            outputs += found if isinstance(found, (tuple, list)) else [found]
        return [
            value if value.dtype in GIVEN else mb.cast(x=value, dtype="fp32") for value in outputs
        ]

    # The builder takes the names of inputs from those of the function's parameters.
    scope = {"function": function}
    exec(f"def main({', '.join(names)}): return function({', '.join(names)})", scope)
    return mb.program(input_specs=specs, opset_version=target)(scope["main"])
