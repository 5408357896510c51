"""Measures how often `pkgtool bench --max-ratio 1.05` is right, on an idle machine and beside a compiler.

A model with 20 layers is held against one with 22 layers, which takes 1.1 of its time, and against itself: in one run,
and against saved times. Counts the runs that fail.

    python3 tests/bench/gate.py --runs 20 [--program target/release/pkgtool] [--idle]
"""

import argparse
import pathlib
import subprocess
import tempfile
import threading

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

WIDTH = 256
LIMIT = "1.05"


def write_model(path, layers):
    """Writes a model of equal layers, each a product and an activation."""
    chance = numpy.random.default_rng(0)
    nodes, weights = [], []
    for layer in range(layers):
        values = (chance.standard_normal((WIDTH, WIDTH)) / numpy.sqrt(WIDTH)).astype(numpy.float32)
        weights.append(numpy_helper.from_array(values, f"w{layer}"))
        nodes.append(helper.make_node("MatMul", [f"x{layer}", f"w{layer}"], [f"m{layer}"]))
        nodes.append(helper.make_node("Tanh", [f"m{layer}"], [f"x{layer + 1}"]))
    value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, WIDTH])
    graph = helper.make_graph(nodes, "layers", [value("x0")], [value(f"x{layers}")], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    path.write_bytes(model.SerializeToString())


class Compiler:
    """Compiles a program with one process again and again."""

    def __init__(self, folder):
        self.source = folder / "load.rs"
        functions = [
            f"pub fn f{place}(v: &[u64]) -> Vec<String> {{ let mut s: Vec<u64> = v.iter().map(|x| x ^ {place}).collect(); "
            "s.sort(); s.dedup(); s.iter().map(|x| format!(\"{x:?}\")).collect() }"
            for place in range(400)
        ]
        self.source.write_text("\n".join(functions))
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.work, args=(folder,))

    def work(self, folder):
        command = ["rustc", "-O", "-C", "codegen-units=1", "--crate-type", "rlib", "--out-dir", folder, self.source]
        while not self.ended.is_set():
            subprocess.run(command, check=True, capture_output=True)

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default="target/release/pkgtool")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seconds", default="2")
    parser.add_argument("--engine", default="tract")
    parser.add_argument("--idle", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        before, after = folder / "before" / "model.onnx", folder / "after" / "model.onnx"
        for path, layers in [(before, 20), (after, 22)]:
            path.parent.mkdir()
            write_model(path, layers)
        saved = folder / "times.json"

        def bench(*arguments):
            command = [args.program, "bench", *arguments, "--engine", args.engine, "--threads", "1", "--seconds", args.seconds]
            return subprocess.run(command, capture_output=True, text=True)

        def fails(*arguments):
            found = bench(*arguments, "--max-ratio", LIMIT)
            if found.returncode not in (0, 1):
                raise SystemExit(found.stderr)
            line = [line.strip() for line in found.stdout.splitlines() if "limit" in line or "busy" in line]
            ratio = found.stdout.splitlines()[-1].split()[-2:]
            print(f"   {'fails ' if found.returncode else 'passes'} {' | '.join(line)} {' '.join(ratio)}", flush=True)
            return found.returncode

        def measure():
            for name, arguments in [
                ("10 % slower, in one run", [before, after]),
                ("the same, in one run", [before, before]),
                ("10 % slower than saved", [after, "--baseline", saved]),
                ("the same as saved", [before, "--baseline", saved]),
            ]:
                print(name, flush=True)
                count = sum(fails(*arguments) for _ in range(args.runs))
                print(f"{name}: {count} of {args.runs} fail", flush=True)

        written = bench(before, "--write-baseline", saved)
        if written.returncode:
            raise SystemExit(written.stderr)
        if args.idle:
            measure()
        else:
            with Compiler(folder):
                measure()


if __name__ == "__main__":
    main()
