"""Small sound ONNX models that `mutate_onnx.py` breaks."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

OPSET = 18


def value(name, shape=(2, 4), elem_type=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, elem_type, shape)


def weights(name, *shape, dtype=np.float32):
    return numpy_helper.from_array(np.arange(np.prod(shape), dtype=dtype).reshape(shape), name)


def node(operator, inputs, outputs, **attributes):
    return helper.make_node(operator, inputs.split(), outputs.split(), name=f"{operator}_{outputs.split()[0]}", **attributes)


def model(nodes, inputs, outputs, initializers=(), opsets=(("", OPSET),), functions=()):
    graph = helper.make_graph(nodes, "main", inputs, outputs, list(initializers))
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets]
    return helper.make_model(graph, ir_version=8, opset_imports=imports, functions=list(functions))


def mlp():
    nodes = [
        node("Gemm", "x w1 b1", "h", alpha=0.5),
        node("Relu", "h", "r"),
        node("Gemm", "r w2", "g", transB=0),
        node("Softmax", "g", "y", axis=-1),
    ]
    stored = [weights("w1", 4, 8), helper.make_tensor("b1", 1, [8], [0.5] * 8), weights("w2", 8, 2)]
    return model(nodes, [value("x")], [value("y", (2, 2))], stored)


def convolutions():
    nodes = [
        node("Conv", "x w", "c", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("LeakyRelu", "c", "l", alpha=0.1),
        node("MaxPool", "l", "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("GlobalAveragePool", "p", "g"),
        node("Flatten", "g", "f"),
        node("Concat", "f f", "y", axis=1),
    ]
    return model(nodes, [value("x", (1, 2, 8, 8))], [value("y", (1, 6))], [weights("w", 3, 2, 3, 3)])


def shapes():
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s i", "d", axis=0),
        node("Concat", "d m", "t", axis=0),
        node("Reshape", "x t", "r"),
        node("Transpose", "r", "u", perm=[1, 0]),
        node("Cast", "u", "c", to=TensorProto.INT64),
        node("ReduceSum", "c a", "y", keepdims=0),
        node("Split", "x p", "k l", axis=1),
        node("Slice", "k i m", "q"),
    ]
    stored = [weights(name, 1, dtype=np.int64) for name in "ia"]
    stored += [numpy_helper.from_array(np.array([-1], np.int64), "m")]
    stored += [numpy_helper.from_array(np.array([2, 2], np.int64), "p")]
    outputs = [value("y", None, TensorProto.INT64), value("l", (2, 2)), value("q", None)]
    return model(nodes, [value("x")], outputs, stored)


def branches():
    then = helper.make_graph([node("Add", "x w", "a")], "then", [], [value("a")])
    other = helper.make_graph([node("Mul", "x x", "b"), node("Neg", "b", "n")], "other", [], [value("n")])
    nodes = [
        node("ReduceMax", "x", "top", keepdims=0),
        node("Greater", "top zero", "is"),
        node("If", "is", "chosen", then_branch=then, else_branch=other),
        node("Relu", "chosen", "y"),
    ]
    zero = helper.make_tensor("zero", 1, [], [0.0])
    return model(nodes, [value("x")], [value("y")], [weights("w", 2, 4), zero])


def loops():
    body = helper.make_graph(
        [node("Add", "carried x", "more"), node("Identity", "going", "goes")],
        "body",
        [value("step", (), TensorProto.INT64), value("going", (), TensorProto.BOOL), value("carried")],
        [value("goes", (), TensorProto.BOOL), value("more")],
    )
    nodes = [
        helper.make_node("Constant", [], ["count"], "counts", value=helper.make_tensor("c", 7, [], [3])),
        helper.make_node("Loop", ["count", "", "x"], ["sum"], "loop", body=body),
        node("Sqrt", "sum", "y"),
    ]
    return model(nodes, [value("x")], [value("y")])


def functions():
    inner = helper.make_function("own", "Twice", ["v"], ["w"], [node("Add", "v v", "w")], [helper.make_opsetid("", OPSET)])
    outer = helper.make_function(
        "own", "Four", ["v"], ["w"],
        [helper.make_node("Twice", ["v"], ["t"], "first", domain="own"), helper.make_node("Twice", ["t"], ["w"], "second", domain="own")],
        [helper.make_opsetid("", OPSET), helper.make_opsetid("own", 1)],
    )
    nodes = [helper.make_node("Four", ["x"], ["f"], "four", domain="own"), node("Relu", "f", "y")]
    return model(nodes, [value("x")], [value("y")], opsets=(("", OPSET), ("own", 1)), functions=[inner, outer])


def contributed():
    nodes = [
        helper.make_node("FusedMatMul", ["x", "w"], ["m"], "fused", domain="com.microsoft", alpha=2.0),
        helper.make_node("Gelu", ["m"], ["g"], "gelu", domain="com.microsoft"),
        helper.make_node("SkipLayerNormalization", ["g", "m", "n"], ["y"], "skip", domain="com.microsoft", epsilon=1e-5),
    ]
    stored = [weights("w", 4, 8), weights("n", 8)]
    return model(nodes, [value("x", (1, 2, 4))], [value("y", (1, 2, 8))], stored, (("", OPSET), ("com.microsoft", 1)))


def quantised():
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("DequantizeLinear", "q s z", "d"),
        node("MatMul", "d w", "m"),
        node("DynamicQuantizeLinear", "m", "dq ds dz"),
        node("MatMulInteger", "dq v dz", "y"),
    ]
    scalar = [helper.make_tensor("s", 1, [], [0.1]), helper.make_tensor("z", 2, [], [3])]
    return model(nodes, [value("x")], [value("y", (2, 2), 6), value("ds", ())], [*scalar, weights("w", 4, 3), weights("v", 3, 2, dtype=np.int8)])


def recurrent():
    nodes = [
        helper.make_node("LSTM", ["x", "w", "r", "", "", "", ""], ["all", "last"], "lstm", hidden_size=2),
        node("Squeeze", "last axes", "s"),
        helper.make_node("Resize", ["x", "", "scales"], ["z"], "resize", mode="nearest"),
        node("Clip", "s", "y"),
        node("Equal", "z z", "e"),
        node("Where", "e z z", "o"),
    ]
    stored = [weights("w", 1, 8, 4), weights("r", 1, 8, 2), numpy_helper.from_array(np.array([0], np.int64), "axes")]
    stored += [helper.make_tensor("scales", 1, [3], [1.0, 1.0, 2.0])]
    return model(nodes, [value("x", (3, 1, 4))], [value("y", (1, 2)), value("o", (3, 1, 8))], stored)


def sequences():
    nodes = [
        node("SequenceConstruct", "x x", "s"),
        node("SequenceAt", "s i", "t"),
        node("Dropout", "t", "d"),
        node("ConstantOfShape", "n", "c", value=helper.make_tensor("v", 1, [1], [2.0])),
        node("Add", "d c", "y"),
        node("TopK", "y k", "best at", largest=1),
    ]
    stored = [helper.make_tensor("i", 7, [], [0]), helper.make_tensor("n", 7, [2], [2, 4]), helper.make_tensor("k", 7, [1], [1])]
    return model(nodes, [value("x")], [value("y"), value("at", (2, 1), 7)], stored)


SEEDS = [mlp, convolutions, shapes, branches, loops, functions, contributed, quantised, recurrent, sequences]
