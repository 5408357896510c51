"""From a torch network to an ONNX file, node by node.

Writing the nodes here keeps the files small and free of traces of the machine that wrote them, and
shows precisely which operators an engine has to know. Opset 17, IR version 10.
"""

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch.nn.utils.fusion import fuse_conv_bn_eval

OPSET, IR_VERSION = 17, 10
ONNX_TYPES = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "int64": TensorProto.INT64,
}


class Graph:
    """A graph under construction. Values are names; `real` is the floating-point type."""

    def __init__(self, name, real="float32"):
        self.name, self.real = name, real
        self.nodes, self.weights, self.inputs, self.outputs = [], [], [], []
        self.signature = {"inputs": [], "outputs": []}

    def input(self, name, shape, dtype=None):
        """A graph input; a string in `shape` is a dynamic dimension and its name."""
        return self._edge("inputs", name, shape, dtype)

    def output(self, value, name, shape, dtype=None):
        """Names a value and makes it a graph output."""
        self.nodes.append(helper.make_node("Identity", [value], [name]))
        return self._edge("outputs", name, shape, dtype)

    def _edge(self, side, name, shape, dtype):
        dtype = dtype or self.real
        getattr(self, side).append(
            helper.make_tensor_value_info(name, ONNX_TYPES[dtype], list(shape))
        )
        sizes = [size if isinstance(size, int) else -1 for size in shape]
        self.signature[side].append({"name": name, "shape": sizes, "dtype": dtype})
        return name

    def weight(self, array, name=None):
        """A constant. Floating point becomes the graph's real type; other types stay."""
        array = array.detach().numpy() if isinstance(array, torch.Tensor) else np.asarray(array)
        if array.dtype.kind == "f":
            array = array.astype(self.real)
        name = name or f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def raw(self, array):
        """A constant whose type is kept, whatever the graph's real type is."""
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def scalar(self, value):
        """A constant of rank 0, whose type is kept."""
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def op(self, kind, *values, outputs=1, **attributes):
        """A node; its output's name, or names when there are several."""
        names = [f"n{len(self.nodes)}_{index}" for index in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(values), names, **attributes))
        return names[0] if outputs == 1 else names

    def model(self):
        """The finished model, checked."""
        graph = helper.make_graph(self.nodes, self.name, self.inputs, self.outputs, self.weights)
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="packages-examples",
        )
        onnx.checker.check_model(model, full_check=True)
        return model

    def bytes(self):
        """The model in one file."""
        return self.model().SerializeToString(deterministic=True)

    def named_signature(self):
        """The signature with the graph's own names."""
        return self.signature

    def plain_signature(self):
        """The signature as an introspecting tool writes it: order, no names."""
        return {
            side: [{key: value[key] for key in ("shape", "dtype")} for value in values]
            for side, values in self.signature.items()
        }


def with_external_data(graph, location):
    """The model and its weights in a second file that lies next to it."""
    model = graph.model()
    blob = bytearray()
    for weight in model.graph.initializer:
        data = weight.raw_data
        if len(data) < 256:
            continue
        blob.extend(b"\0" * (-len(blob) % 64))
        weight.ClearField("raw_data")
        weight.data_location = TensorProto.EXTERNAL
        entries = {"location": location, "offset": len(blob), "length": len(data)}
        for key, value in entries.items():
            weight.external_data.add(key=key, value=str(value))
        blob.extend(data)
    return model.SerializeToString(deterministic=True), bytes(blob)


def conv(graph, x, layer, norm=None):
    """A convolution of one or two spatial dimensions, with its batch norm folded in."""
    layer = fuse_conv_bn_eval(layer, norm) if norm is not None else layer
    inputs = [x, graph.weight(layer.weight)]
    if layer.bias is not None:
        inputs.append(graph.weight(layer.bias))
    return graph.op(
        "Conv",
        *inputs,
        kernel_shape=list(layer.kernel_size),
        strides=list(layer.stride),
        pads=list(layer.padding) * 2,
        dilations=list(layer.dilation),
        group=layer.groups,
    )


def separable(graph, x, block):
    """A depthwise-separable block."""
    x = graph.op("Relu", conv(graph, x, block.depthwise, block.depthwise_norm))
    return graph.op("Relu", conv(graph, x, block.pointwise, block.pointwise_norm))


def linear(graph, x, layer):
    """A linear layer on the last dimension, whatever the rank."""
    product = graph.op("MatMul", x, graph.weight(layer.weight.T))
    return graph.op("Add", product, graph.weight(layer.bias))


def layer_norm(graph, x, layer):
    """A layer norm over the last dimension."""
    weight, bias = graph.weight(layer.weight), graph.weight(layer.bias)
    return graph.op("LayerNormalization", x, weight, bias, axis=-1, epsilon=layer.eps)


def split_heads(graph, x, layer):
    """[batch, length, width] → [batch, heads, length, head size]"""
    sizes = graph.raw(np.array([0, 0, layer.heads, layer.head_size], np.int64))
    return graph.op("Transpose", graph.op("Reshape", x, sizes), perm=[0, 2, 1, 3])


def attention(graph, x, layer, memory=None, bias=None):
    """Multi-head attention of `x` over `memory`, or over itself."""
    memory = x if memory is None else memory
    query = split_heads(graph, linear(graph, x, layer.query), layer)
    key = split_heads(graph, linear(graph, memory, layer.key), layer)
    value = split_heads(graph, linear(graph, memory, layer.value), layer)
    scores = graph.op("MatMul", query, graph.op("Transpose", key, perm=[0, 1, 3, 2]))
    scores = graph.op("Mul", scores, graph.weight(np.float32(layer.head_size**-0.5)))
    if bias is not None:
        scores = graph.op("Add", scores, bias)
    mixed = graph.op("MatMul", graph.op("Softmax", scores, axis=-1), value)
    mixed = graph.op("Transpose", mixed, perm=[0, 2, 1, 3])
    width = layer.heads * layer.head_size
    mixed = graph.op("Reshape", mixed, graph.raw(np.array([0, 0, width], np.int64)))
    return linear(graph, mixed, layer.out)


def block(graph, x, layer, memory=None, bias=None):
    """A pre-norm transformer block."""
    normed = layer_norm(graph, x, layer.attention_norm)
    x = graph.op("Add", x, attention(graph, normed, layer.attention, bias=bias))
    if layer.cross is not None:
        crossed = attention(graph, layer_norm(graph, x, layer.cross_norm), layer.cross, memory)
        x = graph.op("Add", x, crossed)
    inner = linear(graph, layer_norm(graph, x, layer.feed_norm), layer.up)
    return graph.op("Add", x, linear(graph, graph.op("Relu", inner), layer.down))


def length_of(graph, value, axis):
    """The run-time size of one dimension, as a vector of one element."""
    index = graph.raw(np.array([axis], np.int64))
    return graph.op("Gather", graph.op("Shape", value), index, axis=0)


def leading(graph, value, lengths, axes):
    """The first `lengths` entries along `axes` of a constant."""
    zeros = graph.raw(np.zeros(len(axes), np.int64))
    return graph.op("Slice", value, zeros, lengths, graph.raw(np.array(axes, np.int64)))


def unit_length(graph, x):
    """Rows of a matrix divided by their Euclidean norm."""
    return graph.op("Div", x, graph.op("ReduceL2", x, axes=[1], keepdims=1))


def rows_of(graph, x):
    """[1, channels, height, width] → [1, height x width, channels]"""
    channels = graph.raw(np.array([1, 0, -1], np.int64))
    return graph.op("Transpose", graph.op("Reshape", x, channels), perm=[0, 2, 1])


def detector(network, size, real):
    """Boxes in pixels, their scores and their classes, one of each for every cell of a grid."""
    graph = Graph("detector", real)
    x = graph.input("image", [1, 3, size, size])
    x = graph.op("Relu", conv(graph, x, network.stem))
    for layer in network.blocks:
        x = separable(graph, x, layer)
    sides = graph.op("Exp", rows_of(graph, conv(graph, x, network.boxes)))
    boxes = graph.op("Mul", sides, graph.weight(network.signs))
    boxes = graph.op("Add", boxes, graph.weight(network.middles))
    # Logits differ where scores are rounded to 1.
    scores = rows_of(graph, conv(graph, x, network.scores))
    classes = graph.op("ArgMax", scores, axis=2, keepdims=0)
    cells = (size // network.stride) ** 2
    graph.output(boxes, "boxes", [1, cells, 4])
    best = graph.op("Sigmoid", graph.op("ReduceMax", scores, axes=[2], keepdims=0))
    graph.output(best, "scores", [1, cells])
    graph.output(graph.op("Cast", classes, to=ONNX_TYPES[real]), "classes", [1, cells])
    return graph


def looker(network, size):
    """A picture of bytes to rows of embeddings."""
    graph = Graph("looker")
    x = graph.input("pixel_values", [1, 3, size, size])
    half = graph.scalar(np.float32(127.5))
    x = graph.op("Sub", graph.op("Div", x, half), graph.scalar(np.float32(1)))
    x = graph.op("Relu", conv(graph, x, network.stem))
    for layer in network.blocks:
        x = separable(graph, x, layer)
    part = size // 8 // network.side
    x = graph.op("AveragePool", x, kernel_shape=[part, part], strides=[part, part])
    x = linear(graph, rows_of(graph, x), network.out)
    graph.output(x, "image_features", [1, network.side**2, network.out.out_features])
    return graph


def sentence_encoder(network):
    """Token ids of any batch and length to unit-length vectors."""
    graph = Graph("sentence_encoder")
    ids = graph.input("input_ids", ["batch", "sequence"], "int64")
    positions = graph.weight(network.positions, "positions")
    positions = leading(graph, positions, length_of(graph, ids, 1), [1])
    x = graph.op("Add", graph.op("Gather", graph.weight(network.tokens.weight), ids), positions)
    for layer in network.layers:
        x = block(graph, x, layer)
    pooled = graph.op("ReduceMean", layer_norm(graph, x, network.norm), axes=[1], keepdims=0)
    width = network.tokens.embedding_dim
    graph.output(unit_length(graph, pooled), "embedding", ["batch", width])
    return graph


def stylizer(network, size):
    """Image to image, by a convolutional network with a residual pair."""
    graph = Graph("stylizer")
    x = graph.input("image", [1, 3, size, size])
    x = graph.op("Relu", conv(graph, x, network.down))
    inner = graph.op("Relu", conv(graph, x, network.first))
    x = graph.op("Add", x, conv(graph, inner, network.second))
    scales = graph.raw(np.array([1, 1, 2, 2], np.float32))
    modes = {"mode": "nearest", "nearest_mode": "floor"}
    modes["coordinate_transformation_mode"] = "asymmetric"
    x = graph.op("Resize", x, "", scales, **modes)
    graph.output(graph.op("Sigmoid", conv(graph, x, network.out)), "stylized", [1, 3, size, size])
    return graph
