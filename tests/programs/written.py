"""Programs of one delegate whose payload is written by hand, and networks beside such graphs."""

from unittest import mock

import torch
from torch import nn

from harness import Method, Ops, flattened

SHAPES = {}


def written(cases, outputs):
    """A method of labelled outputs: for each what PyTorch makes of the inputs, and the instructions."""
    references = {label: reference for label, reference, _ in outputs}
    return Method(Ops(references), cases), lambda graph, *inputs: [
        emit(graph, *inputs) for _, _, emit in outputs
    ]


def program(name, network, backend):
    """A program that is one delegate: the graph that `network.build` writes for this backend."""
    from executorch.exir import (
        EdgeCompileConfig,
        ExecutorchBackendConfig,
        to_edge_transform_and_lower,
    )
    from executorch.exir.backend.backend_details import PreprocessResult

    import harness

    if backend == "mlx":
        from executorch.backends.mlx.preprocess import MLXBackend as Backend

        import mlx_graphs as graphs
    else:
        from executorch.backends.vulkan.vulkan_preprocess import VulkanBackend as Backend

        import vulkan_graphs as graphs

    method = network.methods["forward"]
    inputs = method.cases[0]
    with torch.no_grad():
        answers = flattened(method.network(*inputs))
    data, stored = graphs.payload(name, method, answers, network.build)

    def preprocess(edge, specs):
        assert len(edge.graph_signature.user_inputs) == len(inputs)
        assert len(edge.graph_signature.user_outputs) == len(answers)
        return PreprocessResult(data, data_store_output=stored)

    SHAPES[name] = answers
    exported = torch.export.export(Stub(name), inputs)
    with mock.patch.object(Backend, "preprocess", staticmethod(preprocess)):
        lowered = to_edge_transform_and_lower(
            exported,
            partitioner=[whole(Backend.__name__)],
            compile_config=EdgeCompileConfig(_check_ir_validity=False, _skip_dim_order=True),
        )
    return lowered.to_executorch(
        ExecutorchBackendConfig(**harness.SMALL, extract_delegate_segments=True)
    )


class Stub(nn.Module):
    """What stands in a program for a graph: its inputs and outputs."""

    def __init__(self, name):
        super().__init__()
        self.name = name

    def forward(self, *inputs):
        return tuple(torch.ops.written.graph(list(inputs), self.name))


LIBRARY = torch.library.Library("written", "DEF")
LIBRARY.define("graph(Tensor[] inputs, str name) -> Tensor[]")


def answered(inputs, name):
    """Tensors like those that the graph gives."""
    return [
        torch.empty(like.shape, dtype=like.dtype, device=inputs[0].device) for like in SHAPES[name]
    ]


LIBRARY.impl("graph", answered, "CompositeExplicitAutograd")


def whole(backend):
    """A partitioner that takes all."""
    from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult

    class Whole(Partitioner):
        def partition(self, exported_program):
            tag = "written"
            for node in exported_program.graph.nodes:
                if node.op == "call_function":
                    node.meta["delegation_tag"] = tag
            return PartitionResult(exported_program, {tag: DelegationSpec(backend, [])})

    return Whole()
