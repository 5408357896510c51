"""Writes the model that `pkgtool bench --baseline` runs beside the measured ones.

It does a little of everything that models do: products, a convolution, elementwise functions and copies of memory.
Its weights are computed from their positions when it is loaded, so the file is small. Run from the repository's root:

    python3 tests/bench/reference.py
"""

import pathlib

import onnx
from onnx import TensorProto, helper

nodes, initializers = [], []


def constant(name, values, dtype=TensorProto.INT64, shape=None):
    initializers.append(helper.make_tensor(name, dtype, [len(values)] if shape is None else shape, values))
    return name


def weights(name, shape, factor):
    """Adds values between -factor and factor."""
    count = 1
    for size in shape:
        count *= size
    limits = [constant(f"{name}_{end}", [value], TensorProto.FLOAT, []) for end, value in [("from", 0), ("to", count), ("step", 1)]]
    nodes.append(helper.make_node("Range", limits, [f"{name}_places"]))
    nodes.append(helper.make_node("Sin", [f"{name}_places"], [f"{name}_sine"]))
    constant(f"{name}_factor", [factor], TensorProto.FLOAT, [])
    nodes.append(helper.make_node("Mul", [f"{name}_sine", f"{name}_factor"], [f"{name}_flat"]))
    constant(f"{name}_shape", shape)
    nodes.append(helper.make_node("Reshape", [f"{name}_flat", f"{name}_shape"], [name]))
    return name


def main():
    value = "x"
    for layer in range(3):
        product = weights(f"product{layer}", [512, 512], 0.05)
        nodes.append(helper.make_node("MatMul", [value, product], [f"multiplied{layer}"]))
        nodes.append(helper.make_node("Tanh", [f"multiplied{layer}"], [f"bent{layer}"]))
        nodes.append(helper.make_node("Softmax", [f"bent{layer}"], [f"shared{layer}"], axis=-1))
        nodes.append(helper.make_node("Add", [f"bent{layer}", f"shared{layer}"], [f"value{layer}"]))
        value = f"value{layer}"
    constant("image_shape", [1, 32, 32, 32])
    nodes.append(helper.make_node("Reshape", [value, "image_shape"], ["image"]))
    kernel = weights("kernel", [32, 32, 3, 3], 0.05)
    nodes.append(helper.make_node("Conv", ["image", kernel], ["convolved"], pads=[1, 1, 1, 1]))
    nodes.append(helper.make_node("Relu", ["convolved"], ["rectified"]))
    constant("copies", [16, 1, 1, 1])
    nodes.append(helper.make_node("Tile", ["rectified", "copies"], ["copied"]))
    nodes.append(helper.make_node("ReduceMean", ["copied"], ["y"], axes=[0, 2, 3], keepdims=0))
    graph = helper.make_graph(
        nodes,
        "reference",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [64, 512])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [32])],
        initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], producer_name="reference")
    model.ir_version = 8
    onnx.checker.check_model(model)
    path = pathlib.Path("src/cli/execute/bench/reference.onnx")
    path.write_bytes(model.SerializeToString())


if __name__ == "__main__":
    main()
