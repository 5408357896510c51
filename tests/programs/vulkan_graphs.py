"""Graphs of Vulkan written call by call, for what no exporter writes of ordinary networks."""

from dataclasses import dataclass, field

import torch


@dataclass
class Place:
    """A value of a graph."""

    index: int


@dataclass
class Graph:
    """A graph that grows. `call` gives the places of what it computes."""

    values: list = field(default_factory=list)
    calls: list = field(default_factory=list)
    constants: list = field(default_factory=list)

    def value(self, value):
        from executorch.backends.vulkan.serialization import vulkan_graph_schema as schema

        self.values.append(schema.VkValue(value))
        return Place(len(self.values) - 1)

    def tensor(self, like, constant=-1):
        """A tensor like this one; whole numbers of 64 bits have 32 there."""
        from executorch.backends.vulkan.serialization import vulkan_graph_schema as schema

        kinds = {
            torch.bool: schema.VkDataType.BOOL,
            torch.uint8: schema.VkDataType.UINT8,
            torch.int8: schema.VkDataType.INT8,
            torch.int32: schema.VkDataType.INT32,
            torch.int64: schema.VkDataType.INT32,
            torch.float32: schema.VkDataType.FLOAT32,
        }
        return self.value(schema.VkTensor(kinds[like.dtype], list(like.shape), constant, -1))

    def constant(self, tensor):
        """A tensor that the program stores."""
        tensor = tensor.int() if tensor.dtype == torch.int64 else tensor
        self.constants.append(tensor.contiguous())
        return self.tensor(tensor, len(self.constants) - 1)

    def symbol(self):
        """An integer that a call writes."""
        from executorch.backends.vulkan.serialization import vulkan_graph_schema as schema

        return self.value(schema.SymInt(0))

    def given(self, value):
        """An argument."""
        from executorch.backends.vulkan.serialization import vulkan_graph_schema as schema

        if isinstance(value, Place):
            return value
        if isinstance(value, torch.Tensor):
            return self.constant(value)
        if isinstance(value, list) and any(isinstance(each, Place) for each in value):
            return self.value(schema.ValueList([self.given(each).index for each in value]))
        kinds = {
            bool: schema.Bool, int: schema.Int, float: schema.Double, str: schema.String, list: schema.IntList,
        }  # fmt: skip
        return self.value(schema.Null() if value is None else kinds[type(value)](value))

    def call(self, name, *args, like):
        """Calls an operator; `like` are tensors, or one, like those that it gives, or a place it writes."""
        from executorch.backends.vulkan.serialization import vulkan_graph_schema as schema

        args = [self.given(arg).index for arg in args]
        several = isinstance(like, tuple)
        outs = [
            out if isinstance(out, Place) else self.tensor(out)
            for out in (like if several else (like,))
        ]
        out = self.value(schema.ValueList([each.index for each in outs])) if several else outs[0]
        self.calls.append(schema.OperatorCall(len(self.calls), name, [*args, out.index]))
        return tuple(outs) if several else outs[0]


def payload(name, method, answers, build):
    """The payload of a graph; it stores its constants itself."""
    from executorch.backends.vulkan.serialization import vulkan_graph_schema as schema
    from executorch.backends.vulkan.serialization.vulkan_graph_serialize import (
        serialize_vulkan_graph,
    )

    graph = Graph()
    inputs = [graph.tensor(value) for value in method.cases[0]]
    outputs = build(graph, *inputs)
    vk_graph = schema.VkGraph(
        "0",
        graph.calls,
        graph.values,
        [place.index for place in inputs],
        [place.index for place in outputs],
        [],
        [],
    )
    return serialize_vulkan_graph(vk_graph, graph.constants, []), None
