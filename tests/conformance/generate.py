#!/usr/bin/env python3
"""Writes the backend test cases of the `onnx` package in a form that is easy to read from Rust.

    generate.py DIRECTORY

makes DIRECTORY/<case>/ with `model.onnx`, `case.json` and one file of raw little-endian bytes for
each input and output. The cases are those the package makes for single operators ("node") and the
small models it brings along ("simple", "pytorch-converted", "pytorch-operator"); those it would
download, and those without weights ("real", "light"), are left out.

Where the first dimension of all inputs and outputs is the same size, `batched.onnx` is the same model
with that dimension open: it may be a batch, for a server to find out.

`case.json`:
    kind       where the case comes from
    opset      version of the default operator set; null if the model does not use it
    operators  the operators of the graph
    rtol, atol tolerances: |found - expected| <= atol + rtol * |expected|
    random     outputs are random numbers: only their dtypes and shapes can be compared
    not_tensors what is not a tensor of numbers or booleans, if anything is; then there are no sets
    sets       data sets: {"inputs": […], "outputs": […]}, each value {"name", "dtype", "shape",
               "file"}
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.backend.test.case.node import collect_testcases
from onnx.backend.test.loader import load_model_tests

DTYPES = {
    TensorProto.BOOL: "bool",
    TensorProto.INT8: "int8",
    TensorProto.UINT8: "uint8",
    TensorProto.INT16: "int16",
    TensorProto.UINT16: "uint16",
    TensorProto.INT32: "int32",
    TensorProto.UINT32: "uint32",
    TensorProto.INT64: "int64",
    TensorProto.UINT64: "uint64",
    TensorProto.FLOAT16: "float16",
    TensorProto.BFLOAT16: "bfloat16",
    TensorProto.FLOAT: "float32",
    TensorProto.DOUBLE: "float64",
}

# What these operators give is random. The suite compares it all the same with numbers of numpy's
# generator, which no engine but the reference can give.
RANDOM = {
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
}


def main():
    directory = Path(sys.argv[1])
    with warnings.catch_warnings():
        # Overflows and divisions by zero are what some cases are about.
        warnings.simplefilter("ignore")
        cases = list(collect_testcases(None))
    for kind in ("simple", "pytorch-converted", "pytorch-operator"):
        cases += load_model_tests(kind=kind)
    names = set()
    for case in sorted(cases, key=lambda case: (case.name, case.kind)):
        if case.name in names:
            raise SystemExit(f"two cases are named {case.name}")
        names.add(case.name)
        write(case, directory / case.name)
    print(f"{len(names)} cases")


def write(case, directory):
    model = case.model or onnx.load(Path(case.model_dir) / "model.onnx")
    directory.mkdir()
    (directory / "model.onnx").write_bytes(model.SerializeToString(deterministic=True))
    batched = with_open_batch(model)
    if batched:
        (directory / "batched.onnx").write_bytes(batched.SerializeToString(deterministic=True))
    operators = sorted({node.op_type for node in all_nodes(model)})
    opsets = {entry.domain or "ai.onnx": entry.version for entry in model.opset_import}
    description = {
        "kind": case.kind,
        "opset": opsets.get("ai.onnx"),
        "operators": operators,
        "rtol": case.rtol,
        "atol": case.atol,
        "random": bool(RANDOM.intersection(operators)) or is_training_dropout(case.name),
        "sets": [],
    }
    problem = not_tensors(model)
    if problem:
        description["not_tensors"] = problem
    else:
        for number, (inputs, outputs) in enumerate(data_sets(case, model)):
            description["sets"].append(
                {
                    "inputs": values(model_inputs(model), inputs, f"{number}_input", directory),
                    "outputs": values(model.graph.output, outputs, f"{number}_output", directory),
                }
            )
    (directory / "case.json").write_text(json.dumps(description))


def is_training_dropout(name):
    """Dropout that drops: all but the training cases whose ratio is zero."""
    return name.startswith("test_training_dropout") and "zero_ratio" not in name


def model_inputs(model):
    """The inputs to be fed: without those that only give an initializer's type."""
    initialized = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in initialized]


def with_open_batch(model):
    """The model with its first dimension open, if all inputs and outputs have the same one."""
    batched = onnx.ModelProto()
    batched.CopyFrom(model)
    values = [*model_inputs(batched), *batched.graph.output]
    if any(value.type.WhichOneof("value") != "tensor_type" for value in values):
        return None
    shapes = [value.type.tensor_type.shape.dim for value in values]
    if not model_inputs(batched) or any(len(shape) == 0 for shape in shapes):
        return None
    sizes = {shape[0].dim_value for shape in shapes}
    if len(sizes) != 1 or sizes == {0}:
        return None
    for shape in shapes:
        shape[0].dim_param = "rows"
    del batched.graph.value_info[:]
    return batched


def all_nodes(model):
    """The nodes of the graph, of graphs within it, and of the model's functions."""
    pending = list(model.graph.node)
    for function in model.functions:
        pending += function.node
    while pending:
        node = pending.pop()
        yield node
        for attribute in node.attribute:
            for graph in [attribute.g, *attribute.graphs]:
                pending += graph.node


def not_tensors(model):
    """The first value that is not a tensor of a known dtype, in words."""
    for value in [*model_inputs(model), *model.graph.output]:
        kind = value.type.WhichOneof("value")
        if kind != "tensor_type":
            return f"{value.name}: {kind}"
        if value.type.tensor_type.elem_type not in DTYPES:
            element = TensorProto.DataType.Name(value.type.tensor_type.elem_type)
            return f"{value.name}: {element.lower()}"
    return None


def data_sets(case, model):
    if case.data_sets is not None:
        yield from case.data_sets
        return
    for directory in sorted(Path(case.model_dir).glob("test_data_set*")):
        yield tuple(
            [
                onnx.load_tensor(directory / f"{side}_{index}.pb")
                for index in range(len(list(directory.glob(f"{side}_*.pb"))))
            ]
            for side in ("input", "output")
        )


def values(infos, arrays, prefix, directory):
    if len(infos) != len(arrays):
        raise SystemExit(f"{directory.name}: {len(arrays)} values for {len(infos)} {prefix}s")
    written = []
    for index, (info, array) in enumerate(zip(infos, arrays)):
        if isinstance(array, TensorProto):
            array = numpy_helper.to_array(array)
        array = np.asarray(array)
        expected = onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
        if array.dtype != expected:
            raise SystemExit(f"{directory.name}: {info.name} is {array.dtype}, not {expected}")
        little = array if array.dtype.byteorder != ">" else array.astype(array.dtype.newbyteorder("<"))
        written.append(write_value(info, little, directory, f"{prefix}_{index}.bin"))
    return written


def write_value(info, array, directory, file):
    """Writes the bytes of an input or output; returns its description."""
    (directory / file).write_bytes(np.ascontiguousarray(array).tobytes())
    return {
        "name": info.name,
        "dtype": DTYPES[info.type.tensor_type.elem_type],
        "shape": list(array.shape),
        "file": file,
    }


if __name__ == "__main__":
    main()
