"""The classifier as an int8 ONNX file in QDQ form: every tensor between two operators is int8.

Weights: symmetric, a scale a channel. Activations: asymmetric, ranges from a calibration run of
the torch network on pictures.
"""

import numpy as np
import torch
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_eval

from .onnx_files import Graph


def classifier(network, pictures, batch):
    """Images to class scores. Dequantize, compute, quantize; inputs and outputs stay float32."""
    layers, size = folded(network), pictures.shape[-1]
    ranges = calibrate(layers, network.head, pictures)
    graph = Graph("classifier")
    x = requantized(graph, graph.input("image", [batch, 3, size, size]), ranges["image"])
    for number, layer in enumerate(layers):
        scale = ranges_to_scale(ranges[f"in{number}"])[0]
        inputs = [x, weight(graph, layer.weight), bias(graph, layer, scale)]
        x = graph.op(
            "Conv",
            *inputs,
            kernel_shape=list(layer.kernel_size),
            strides=list(layer.stride),
            pads=list(layer.padding) * 2,
            group=layer.groups,
        )
        x = requantized(graph, graph.op("Relu", x), ranges[f"in{number + 1}"])
    x = requantized(graph, graph.op("GlobalAveragePool", x), ranges["pooled"])
    x = graph.op("Flatten", x, axis=1)
    scale = ranges_to_scale(ranges["pooled"])[0]
    head = network.head
    x = graph.op("Gemm", x, weight(graph, head.weight), bias(graph, head, scale), transB=1)
    x = requantized(graph, x, ranges["logits"])
    graph.output(x, "logits", [batch, head.out_features])
    return graph


def folded(network):
    """All convolutions in order, batch norms folded in."""
    layers = [network.stem]
    for block in network.blocks:
        layers.append(fuse_conv_bn_eval(block.depthwise, block.depthwise_norm))
        layers.append(fuse_conv_bn_eval(block.pointwise, block.pointwise_norm))
    return layers


def calibrate(layers, head, x):
    """Smallest and largest value at every point that is quantized."""
    seen = {"image": bounds(x), "in0": bounds(x)}
    with torch.no_grad():
        for number, layer in enumerate(layers):
            x = torch.relu(layer(x))
            seen[f"in{number + 1}"] = bounds(x)
        x = F.adaptive_avg_pool2d(x, 1)
        seen["pooled"] = bounds(x)
        seen["logits"] = bounds(head(x.flatten(1)))
    return seen


def bounds(x):
    """The range of a tensor, widened to hold zero."""
    return min(float(x.min()), 0.0), max(float(x.max()), 0.0)


def ranges_to_scale(limits):
    """Scale and zero point of an asymmetric int8 range."""
    scale = np.float32((limits[1] - limits[0]) / 255 or 1.0)
    return scale, np.int8(np.clip(np.round(-128 - limits[0] / scale), -128, 127))


def requantized(graph, x, limits):
    """A value sent through int8 and back."""
    scale, zero = ranges_to_scale(limits)
    scale, zero = graph.raw(np.array(scale)), graph.raw(np.array(zero))
    stored = graph.op("QuantizeLinear", x, scale, zero)
    return graph.op("DequantizeLinear", stored, scale, zero)


def weight(graph, values):
    """An int8 constant, dequantized by a scale an output channel."""
    values = values.detach().numpy()
    scales = channel_scales(values)
    shape = [-1] + [1] * (values.ndim - 1)
    stored = np.clip(np.round(values / scales.reshape(shape)), -127, 127).astype(np.int8)
    zeros = graph.raw(np.zeros(len(scales), np.int8))
    return graph.op("DequantizeLinear", graph.raw(stored), graph.raw(scales), zeros, axis=0)


def bias(graph, layer, input_scale):
    """An int32 constant in units of input scale times weight scale."""
    scales = channel_scales(layer.weight.detach().numpy()) * input_scale
    stored = np.round(layer.bias.detach().numpy() / scales).astype(np.int32)
    zeros = graph.raw(np.zeros(len(scales), np.int32))
    return graph.op("DequantizeLinear", graph.raw(stored), graph.raw(scales), zeros, axis=0)


def channel_scales(values):
    """Largest magnitude an output channel over 127."""
    return (np.abs(values.reshape(len(values), -1)).max(axis=1) / 127).astype(np.float32)
