#!/usr/bin/env python3
"""Times recurrent ONNX operators on the embedded engine against ONNX Runtime.

    tests/setup && python3 tests/bench/recurrences.py [--binary FILE] [--runs 200] [--rounds 5] [--json FILE]

Each model is one operator with random weights and a batch of one. The engines take turns, a round each, with one
thread. A ratio is the median over the rounds of the ratio of two medians. Needs the Python packages onnx and numpy.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parents[2]
# Elements of a state, elements of an input, and steps.
SIZES = [(64, 32, 30), (128, 64, 50), (256, 256, 100)]
GATES = {"LSTM": 4, "GRU": 3, "DynamicQuantizeLSTM": 4}
ENGINES = ("tract", "ort")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", type=Path, default=ROOT / "target" / "release" / "pkgtool")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results = []
    print("| operator | state | steps | embedded | ONNX Runtime | ratio |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for operator in GATES:
            for hidden, inputs, steps in SIZES:
                model = Path(folder) / "model.onnx"
                onnx.save(made(operator, hidden, inputs, steps), model)
                rounds = [[timed(options, model, engine) for engine in ENGINES] for _ in range(options.rounds)]
                ratio = statistics.median(own / peer for own, peer in rounds)
                own, peer = (statistics.median(times) for times in zip(*rounds))
                print(f"| {operator} | {hidden} | {steps} | {own:.3f} ms | {peer:.3f} ms | {ratio:.2f} |")
                results.append({"operator": operator, "hidden": hidden, "steps": steps, "ratio": ratio})
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


def made(operator, hidden, inputs, steps):
    """A model of one operator."""
    rng = np.random.default_rng(hidden)
    rows = GATES[operator] * hidden

    def numbers(*shape):
        return (0.1 * rng.uniform(-1, 1, shape)).astype(np.float32)

    if operator == "DynamicQuantizeLSTM":
        stored = {
            "W": rng.integers(-127, 127, (1, inputs, rows)).astype(np.int8),
            "R": rng.integers(-127, 127, (1, hidden, rows)).astype(np.int8),
            "B": numbers(1, 2 * rows),
        }
        for name in ("w", "r"):
            stored[f"{name}_scale"] = np.full(1, 0.001, np.float32)
            stored[f"{name}_zero"] = np.zeros(1, np.int8)
        names = ["X", "W", "R", "B", "", "", "", "", "w_scale", "w_zero", "r_scale", "r_zero"]
        domain = "com.microsoft"
    else:
        stored = {"W": numbers(1, rows, inputs), "R": numbers(1, rows, hidden), "B": numbers(1, 2 * rows)}
        names, domain = ["X", "W", "R", "B"], ""
    node = helper.make_node(operator, names, ["Y"], domain=domain, hidden_size=hidden)
    graph = helper.make_graph(
        [node],
        "recurrence",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, [steps, 1, inputs])],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in stored.items()],
    )
    versions = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=versions, ir_version=8)


def timed(options, model, engine):
    """The median time of a run, in milliseconds."""
    command = [options.binary, "bench", model, "--engine", engine, "--threads", "1", "--runs", options.runs, "--json"]
    told = subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True)
    return json.loads(told.stdout)["series"][0]["p50_ms"]


if __name__ == "__main__":
    main()
