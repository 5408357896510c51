#!/usr/bin/env python3
"""Prints generated cases for a person to look at: python triage.py DIRECTORY..."""

import json
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper


def main():
    np.set_printoptions(linewidth=160, threshold=40, precision=7)
    for directory in map(Path, sys.argv[1:]):
        show(directory)


def show(directory):
    case = json.loads((directory / "case.json").read_text())
    print(f"== {directory.name}: {case['label']}, opset {case['opset']}, told by {case['told']}")
    model = onnx.load(directory / "model.onnx")
    for value in model.graph.input:
        dims = [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        print(f"   {value.name}: {value.type.tensor_type.elem_type} {dims}")
    for tensor in model.graph.initializer:
        print(f"   {tensor.name} = {list(tensor.dims)} {numpy_helper.to_array(tensor).ravel()[:12]}")
    for node in model.graph.node:
        attributes = {entry.name: helper.get_attribute_value(entry) for entry in node.attribute if entry.type not in (4, 5)}
        print(f"   {', '.join(node.output)} = {node.op_type}({', '.join(node.input)}) {attributes}")
    others = directory / "other.json"
    other = json.loads(others.read_text()) if others.is_file() else None
    for number, data in enumerate(case["sets"]):
        for value in data["inputs"]:
            print(f"   set {number}, {value['name']}: {read(directory, value)}")
        for at, value in enumerate(data["outputs"]):
            print(f"   set {number}, expected {value['name']}: {read(directory, value)}")
            if other:
                print(f"   set {number}, ONNX Runtime says: {read(directory, other['sets'][number]['outputs'][at])}")
        break
    said = directory / "said.json"
    if said.is_file():
        print(said.read_text())


def read(directory, value):
    array = np.fromfile(directory / value["file"], value["dtype"]).reshape(value["shape"])
    return f"{list(array.shape)} {array.ravel()}"


if __name__ == "__main__":
    main()
