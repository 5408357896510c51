#!/usr/bin/env python3
"""Breaks small sound ONNX models and asks ONNX Runtime about each: mutate_onnx.py [--seed N] DIRECTORY

Writes `NNNN.onnx` files and `verdicts.json`: for each file its seed model, the mutation, and why ONNX
Runtime refuses to load it, or null. The same seed number gives the same files.
"""

import argparse
import json
import random
import sys
from pathlib import Path

import onnx
import onnxruntime
from onnx import AttributeProto, TensorProto, helper

from onnx_seeds import SEEDS, value

# How often each mutation is tried on each model.
TRIES = 3


def graphs(model):
    """The main graph and all graphs inside it."""
    found, left = [], [model.graph]
    while left:
        graph = left.pop(0)
        found.append(graph)
        for attribute in (attribute for node in graph.node for attribute in node.attribute):
            left += [attribute.g] if attribute.HasField("g") else []
            left += attribute.graphs
    return found


def nodes(model):
    """All nodes, those of functions included."""
    owners = graphs(model) + list(model.functions)
    return [node for owner in owners for node in owner.node]


def pick(rng, items):
    items = list(items)
    if not items:
        raise Unsuitable
    return rng.choice(items)


class Unsuitable(Exception):
    """The model has nothing that this mutation changes."""


MUTATIONS = {}


def mutation(function):
    MUTATIONS[function.__name__] = function
    return function


@mutation
def nothing(model, rng):
    return ""


@mutation
def doubled_node_name(model, rng):
    graph = pick(rng, [graph for graph in graphs(model) if len(graph.node) > 1])
    one, other = rng.sample(list(graph.node), 2)
    other.name = one.name


@mutation
def unnamed_nodes(model, rng):
    for node in nodes(model):
        node.name = ""


@mutation
def doubled_output_name(model, rng):
    graph = pick(rng, [graph for graph in graphs(model) if len(graph.node) > 1])
    one, other = rng.sample(list(graph.node), 2)
    other.output[0] = one.output[0]


@mutation
def output_named_as_input(model, rng):
    node = pick(rng, model.graph.node)
    node.output[0] = model.graph.input[0].name


@mutation
def output_named_as_initializer(model, rng):
    pick(rng, model.graph.node).output[0] = pick(rng, model.graph.initializer).name


@mutation
def doubled_initializer(model, rng):
    model.graph.initializer.append(pick(rng, model.graph.initializer))


@mutation
def initializer_name_of_other(model, rng):
    if len(model.graph.initializer) < 2:
        raise Unsuitable
    one, other = rng.sample(list(model.graph.initializer), 2)
    other.name = one.name


@mutation
def unnamed_initializer(model, rng):
    tensor = TensorProto()
    tensor.CopyFrom(pick(rng, model.graph.initializer))
    tensor.name = ""
    model.graph.initializer.append(tensor)


@mutation
def doubled_input(model, rng):
    model.graph.input.append(model.graph.input[0])


@mutation
def doubled_output(model, rng):
    model.graph.output.append(model.graph.output[0])


@mutation
def unnamed_input(model, rng):
    model.graph.input[0].name = ""


@mutation
def unnamed_output(model, rng):
    model.graph.output[0].name = ""


@mutation
def initializer_as_input(model, rng):
    tensor = pick(rng, model.graph.initializer)
    model.graph.input.append(value(tensor.name, list(tensor.dims), tensor.data_type))


@mutation
def initializer_as_input_of_other_type(model, rng):
    tensor = pick(rng, model.graph.initializer)
    other = TensorProto.DOUBLE if tensor.data_type != TensorProto.DOUBLE else TensorProto.FLOAT
    model.graph.input.append(value(tensor.name, list(tensor.dims), other))


@mutation
def initializer_as_output(model, rng):
    tensor = pick(rng, model.graph.initializer)
    model.graph.output.append(value(tensor.name, list(tensor.dims), tensor.data_type))


@mutation
def input_as_output(model, rng):
    model.graph.output.append(model.graph.input[0])


@mutation
def reversed_nodes(model, rng):
    graph = pick(rng, [graph for graph in [*graphs(model), *model.functions] if len(graph.node) > 1])
    order = list(graph.node)[::-1]
    del graph.node[:]
    graph.node.extend(order)


@mutation
def cycle(model, rng):
    graph = pick(rng, [graph for graph in [*graphs(model), *model.functions] if len(graph.node) > 1])
    early = rng.randrange(len(graph.node) - 1)
    late = rng.randrange(early + 1, len(graph.node))
    if not graph.node[early].input:
        raise Unsuitable
    graph.node[early].input[0] = graph.node[late].output[0]


@mutation
def own_input(model, rng):
    node = pick(rng, [node for node in nodes(model) if node.input])
    node.input[rng.randrange(len(node.input))] = node.output[0]


@mutation
def undefined_input(model, rng):
    node = pick(rng, [node for node in nodes(model) if node.input])
    node.input[rng.randrange(len(node.input))] = "nowhere"


@mutation
def empty_input(model, rng):
    node = pick(rng, [node for node in nodes(model) if node.input])
    node.input[rng.randrange(len(node.input))] = ""


@mutation
def empty_output(model, rng):
    node = pick(rng, nodes(model))
    node.output[rng.randrange(len(node.output))] = ""


@mutation
def undefined_output(model, rng):
    model.graph.output.append(value("nowhere"))


@mutation
def input_gone(model, rng):
    del model.graph.input[0]


@mutation
def unknown_attribute(model, rng):
    pick(rng, nodes(model)).attribute.append(helper.make_attribute("unheard_of", 1))


@mutation
def attribute_of_other_operator(model, rng):
    node = pick(rng, nodes(model))
    name = pick(rng, {"axis", "alpha", "keepdims", "perm", "to"} - {attribute.name for attribute in node.attribute})
    node.attribute.append(helper.make_attribute(name, 0.5 if name == "alpha" else [0] if name == "perm" else 1))


@mutation
def renamed_attribute(model, rng):
    node = pick(rng, [node for node in nodes(model) if node.attribute])
    pick(rng, node.attribute).name += "s"


@mutation
def unnamed_attribute(model, rng):
    node = pick(rng, [node for node in nodes(model) if node.attribute])
    pick(rng, node.attribute).name = ""


@mutation
def doubled_attribute(model, rng):
    node = pick(rng, [node for node in nodes(model) if node.attribute])
    node.attribute.append(pick(rng, node.attribute))


@mutation
def wrong_attribute_type(model, rng):
    node = pick(rng, [node for node in nodes(model) if node.attribute])
    attribute = pick(rng, node.attribute)
    values = {AttributeProto.INT: 0.5, AttributeProto.FLOAT: "half", AttributeProto.STRING: 3}
    other = helper.make_attribute(attribute.name, values.get(attribute.type, 7))
    attribute.CopyFrom(other)


@mutation
def wrong_attribute_type_field(model, rng):
    node = pick(rng, [node for node in nodes(model) if node.attribute])
    pick(rng, node.attribute).type = pick(rng, [1, 2, 3, 4, 6, 7, 8])


@mutation
def no_attribute_type_field(model, rng):
    node = pick(rng, [node for node in nodes(model) if node.attribute])
    pick(rng, node.attribute).ClearField("type")


@mutation
def attribute_without_value(model, rng):
    node = pick(rng, [node for node in nodes(model) if node.attribute])
    attribute = pick(rng, node.attribute)
    name, kind = attribute.name, attribute.type
    attribute.Clear()
    attribute.name, attribute.type = name, kind


@mutation
def attribute_with_two_values(model, rng):
    node = pick(rng, [node for node in nodes(model) if node.attribute])
    attribute = pick(rng, node.attribute)
    attribute.f = 0.5
    attribute.i = 2


@mutation
def attribute_gone(model, rng):
    node = pick(rng, [node for node in nodes(model) if node.attribute])
    node.attribute.remove(pick(rng, node.attribute))


@mutation
def referring_attribute(model, rng):
    node = pick(rng, nodes(model))
    node.attribute.append(AttributeProto(name="axis", type=AttributeProto.INT, ref_attr_name="outside"))


@mutation
def extra_input(model, rng):
    node = pick(rng, [node for node in nodes(model) if node.input and node.input[0]])
    for _ in range(rng.choice([1, 1, 6])):
        node.input.append(node.input[0])


@mutation
def missing_input(model, rng):
    node = pick(rng, [node for node in nodes(model) if node.input])
    node.input.pop()


@mutation
def no_inputs(model, rng):
    node = pick(rng, [node for node in nodes(model) if node.input])
    del node.input[:]


@mutation
def extra_output(model, rng):
    node = pick(rng, nodes(model))
    for number in range(rng.choice([1, 1, 6])):
        node.output.append(f"extra_{number}")


@mutation
def no_outputs(model, rng):
    node = pick(rng, nodes(model))
    del node.output[:]


@mutation
def swapped_inputs(model, rng):
    node = pick(rng, [node for node in nodes(model) if len(node.input) > 1])
    one, other = rng.sample(range(len(node.input)), 2)
    node.input[one], node.input[other] = node.input[other], node.input[one]


@mutation
def unknown_operator(model, rng):
    node = pick(rng, nodes(model))
    node.op_type = pick(rng, ["UnheardOf", node.op_type.lower(), node.op_type + "2", ""])


@mutation
def unknown_domain(model, rng):
    pick(rng, nodes(model)).domain = pick(rng, ["org.example", "ai.onnx.ml", "com.microsoft", "ai.onnx"])


@mutation
def unknown_domain_imported(model, rng):
    pick(rng, nodes(model)).domain = "org.example"
    model.opset_import.append(helper.make_opsetid("org.example", 1))


@mutation
def other_operator(model, rng):
    pick(rng, nodes(model)).op_type = pick(rng, ["Relu", "Add", "Gemm", "Conv", "Not", "Where", "Upsample", "Scatter", "Shape"])


@mutation
def opset(model, rng):
    versions = [0, -1, 1, 5, 6, 7, 9, 10, 11, 12, 13, 15, 17, 20, 21, 22, 24, 25, 26, 27, 28, 29, 30, 100, 2**31, 2**40]
    pick(rng, model.opset_import).version = pick(rng, versions)


@mutation
def opset_of_domain(model, rng):
    domain = pick(rng, ["com.microsoft", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview.training", "org.example"])
    model.opset_import.append(helper.make_opsetid(domain, pick(rng, [0, 1, 2, 6, 9, 1000])))


@mutation
def no_opset(model, rng):
    del model.opset_import[0]


@mutation
def no_opset_version(model, rng):
    model.opset_import[0].ClearField("version")


@mutation
def doubled_opset(model, rng):
    domain = pick(rng, ["", "ai.onnx", "com.microsoft"])
    version = pick(rng, [18, 13, 1, 100])
    model.opset_import.append(helper.make_opsetid(domain, version))
    if domain == "com.microsoft":
        model.opset_import.append(helper.make_opsetid(domain, version))


@mutation
def ir_version(model, rng):
    model.ir_version = pick(rng, [0, -1, 1, 2, 3, 4, 7, 10, 11, 12, 13, 14, 15, 16, 99, 2**40])


@mutation
def no_ir_version(model, rng):
    model.ClearField("ir_version")


@mutation
def dtype_of_initializer(model, rng):
    tensor = pick(rng, model.graph.initializer)
    tensor.data_type = pick(rng, [0, 1, 2, 3, 6, 7, 9, 10, 11, 16, 17, 22, 40, -1])


@mutation
def data_of_initializer(model, rng):
    tensor = pick(rng, [tensor for tensor in model.graph.initializer if tensor.raw_data])
    change = pick(rng, [lambda raw: raw[:-1], lambda raw: raw + b"\0\0\0\0", lambda raw: b"", lambda raw: raw[: len(raw) // 2]])
    tensor.raw_data = change(tensor.raw_data)


@mutation
def numbers_of_initializer(model, rng):
    lists = ["float_data", "int64_data", "int32_data", "double_data"]
    tensor = pick(rng, [tensor for tensor in model.graph.initializer if not tensor.raw_data])
    name = pick(rng, [name for name in lists if len(getattr(tensor, name))])
    numbers = getattr(tensor, name)
    rng.choice([numbers.pop, lambda: numbers.append(numbers[0])])()


@mutation
def two_kinds_of_data(model, rng):
    tensor = pick(rng, [tensor for tensor in model.graph.initializer if tensor.raw_data])
    tensor.int32_data.append(1)


@mutation
def dims_of_initializer(model, rng):
    tensor = pick(rng, [tensor for tensor in model.graph.initializer if tensor.dims])
    tensor.dims[0] = pick(rng, [0, -1, tensor.dims[0] + 1, 2**62])


@mutation
def type_of_input(model, rng):
    model.graph.input[0].type.tensor_type.elem_type = pick(rng, [0, 2, 6, 7, 8, 9, 10, 11, 16, 40])


@mutation
def no_type_of_input(model, rng):
    model.graph.input[0].ClearField("type")


@mutation
def type_of_output(model, rng):
    graph = pick(rng, [graph for graph in graphs(model) if graph.output])
    pick(rng, graph.output).type.tensor_type.elem_type = pick(rng, [0, 6, 7, 9, 11, 40])


@mutation
def no_type_of_output(model, rng):
    pick(rng, model.graph.output).ClearField("type")


@mutation
def type_in_between(model, rng):
    name = pick(rng, [node.output[0] for node in model.graph.node])
    model.graph.value_info.append(value(name, None, pick(rng, [1, 6, 7, 9, 11])))


@mutation
def shadowed_in_subgraph(model, rng):
    inner = pick(rng, graphs(model)[1:])
    node = pick(rng, inner.node)
    names = [model.graph.input[0].name, model.graph.node[0].output[0], model.graph.node[-1].output[0]]
    names += [tensor.name for tensor in model.graph.initializer]
    old, new = node.output[0], pick(rng, names)
    node.output[0] = new
    for output in inner.output:
        output.name = new if output.name == old else output.name


@mutation
def shadowing_initializer(model, rng):
    inner = pick(rng, graphs(model)[1:])
    tensor = helper.make_tensor(pick(rng, [model.graph.input[0].name, model.graph.node[0].output[0]]), 1, [1], [1.0])
    inner.initializer.append(tensor)


@mutation
def shadowing_input(model, rng):
    inner = pick(rng, [graph for graph in graphs(model)[1:] if graph.input])
    inner.input[0].name = model.graph.input[0].name


@mutation
def outer_value_as_output_of_subgraph(model, rng):
    pick(rng, graphs(model)[1:]).output[-1].name = model.graph.input[0].name


@mutation
def later_value_in_subgraph(model, rng):
    inner = pick(rng, graphs(model)[1:])
    pick(rng, [node for node in inner.node if node.input]).input[0] = model.graph.node[-1].output[0]


@mutation
def output_of_subgraph_not_made(model, rng):
    pick(rng, graphs(model)[1:]).output[-1].name = "nowhere"


@mutation
def subgraph_of_other_interface(model, rng):
    inner = pick(rng, graphs(model)[1:])
    if rng.random() < 0.5:
        inner.output.append(inner.output[0])
    else:
        inner.input.append(value("further"))


@mutation
def recursive_function(model, rng):
    if not model.functions:
        raise Unsuitable
    caller = pick(rng, model.functions)
    callee = pick(rng, model.functions)
    pick(rng, caller.node).CopyFrom(helper.make_node(callee.name, ["v"], ["w"], "again", domain="own"))


@mutation
def doubled_function(model, rng):
    model.functions.append(pick(rng, model.functions))


@mutation
def unused_broken_function(model, rng):
    if not model.functions:
        raise Unsuitable
    broken = helper.make_function("own", "Unused", ["v"], ["w"], [helper.make_node("UnheardOf", ["v"], ["w"])], [helper.make_opsetid("", 18)])
    model.functions.append(broken)


@mutation
def opset_of_function(model, rng):
    function = pick(rng, model.functions)
    if rng.random() < 0.4:
        del function.opset_import[:]
    else:
        function.opset_import[0].version = pick(rng, [1, 13, 17, 27, 28, 29, 100])


@mutation
def arity_of_function(model, rng):
    node = pick(rng, [node for node in nodes(model) if node.domain == "own"])
    change = pick(rng, [lambda: node.input.append(node.input[0]), node.input.pop, lambda: node.output.append("extra"), node.output.pop])
    change()


@mutation
def output_of_function_not_made(model, rng):
    pick(rng, model.functions).output[0] = "nowhere"


@mutation
def no_nodes(model, rng):
    del model.graph.node[:]


@mutation
def no_graph_name(model, rng):
    model.graph.name = ""


@mutation
def no_graph(model, rng):
    model.ClearField("graph")


def refusal(data):
    """Why ONNX Runtime does not load the model, or None."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # Its kinds have no common ancestor.
        return f"{type(error).__name__}: {error}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tries", type=int, default=TRIES)
    parser.add_argument("directory", type=Path)
    arguments = parser.parse_args()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    verdicts, seen = [], set()
    for make in SEEDS:
        for kind, mutate in MUTATIONS.items():
            for attempt in range(arguments.tries):
                rng = random.Random(f"{arguments.seed} {make.__name__} {kind} {attempt}")
                model = make()
                try:
                    mutate(model, rng)
                except Unsuitable:
                    break
                data = model.SerializeToString(deterministic=True)
                if data in seen:
                    continue
                seen.add(data)
                name = f"{len(verdicts):04}.onnx"
                (arguments.directory / name).write_bytes(data)
                verdicts.append({"file": name, "model": make.__name__, "mutation": kind, "refusal": refusal(data)})
    text = json.dumps(verdicts, indent=1)
    (arguments.directory / "verdicts.json").write_text(text)
    print(len(verdicts), sum(verdict["refusal"] is not None for verdict in verdicts))


if __name__ == "__main__":
    sys.exit(main())
