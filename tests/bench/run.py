#!/usr/bin/env python3
"""Times pkgtool's engines against their peers: the same library, model, inputs and threads.

    tests/setup && python3 tests/bench/run.py [--rounds 7] [--seconds 2] [--only MODEL] [--json FILE]

`ort` against Python onnxruntime with the library of the test environment, `tract` against a program
that uses only tract (tests/bench/bare-tract). All take turns, a round each; a ratio is
the median over the rounds of the ratio of two medians. Then the peak memory of loading 1 GB of
weights and running once, as a multiple of the weights. Needs Linux, 3 GB of free disk and memory.

Models are made with the onnx package: an MLP, a convolutional network, a transformer block, a
quantized (QDQ) convolution, and sums of two small vectors and of two matrices of 16 MB, which measure
almost only the transfer of inputs and outputs.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / "target" / "bench-run"
PKGTOOL = ROOT / "target" / "release" / "pkgtool"
BARE = Path(__file__).parent / "bare-tract"
ENVIRONMENT = ROOT / "target" / "test-environment"

# Runs in a process of its own: loads, runs for so many seconds, prints times and its peak memory.
PYTHON_PEER = """
import json, sys, time
import numpy as np, onnxruntime as ort
model, threads, seconds, inputs = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4:]
options = ort.SessionOptions()
options.intra_op_num_threads = threads
session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
feed = {}
for text in inputs:
    name, shape = text.split("=")
    dtype = np.float32
    if shape.startswith("i64:"):
        dtype, shape = np.int64, shape[4:]
    # Not zeros: the system would give one page for all of them.
    feed[name] = np.ones([int(size) for size in shape.split("x")], dtype)
for _ in range(5):
    session.run(None, feed)
times, begin = [], time.perf_counter()
while time.perf_counter() - begin < seconds or len(times) < 3:
    start = time.perf_counter_ns()
    session.run(None, feed)
    times.append(time.perf_counter_ns() - start)
peak = next(l.split()[1] for l in open("/proc/self/status") if l.startswith("VmHWM"))
print(json.dumps({"times_ns": times, "peak": int(peak) * 1024}))
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--only", help="a model's name; leaves out the memory too")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    use_environment()
    subprocess.run(["cargo", "build", "--release", "--locked"], cwd=ROOT, check=True)
    subprocess.run(["cargo", "build", "--release", "--locked"], cwd=BARE, check=True)
    CACHE.mkdir(parents=True, exist_ok=True)
    machine = f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}"
    results = {"machine": machine, "times": [], "memory": []}
    print(f"\n{machine}; {options.rounds} rounds of {options.seconds} s each\n")
    print("| model | threads | ort | / Python onnxruntime | tract | / bare tract |")
    print("|---|---|---|---|---|---|")
    for name, make in MODELS.items():
        if options.only not in (None, name):
            continue
        path, inputs = made(name, make)
        for threads in (1, 2):
            results["times"].append(compare(name, path, inputs, threads, options))
    if options.only:
        return
    print("\n| 1 GB of weights | peak memory | of the weights |\n|---|---|---|")
    results["memory"] = memory()
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


def use_environment():
    """The packages of the test environment, for this process and those it starts."""
    packages = [str(ENVIRONMENT / piece) for piece in ("ort", "shared")]
    if not all(Path(path).is_dir() for path in packages):
        sys.exit("run tests/setup first: it gets onnxruntime and onnx")
    sys.path[:0] = packages
    os.environ["PYTHONPATH"] = os.pathsep.join(packages)
    libraries = sorted((ENVIRONMENT / "ort/onnxruntime/capi").glob("libonnxruntime.so.*"))
    os.environ["ORT_DYLIB_PATH"] = str(libraries[-1])


# ---- Times ----


def compare(name, path, inputs, threads, options):
    runners = {
        "ort": lambda: pkgtool("ort", path, threads, options.seconds),
        "python": lambda: python(path, inputs, threads, options.seconds),
        "tract": lambda: pkgtool("tract", path, threads, options.seconds),
        "bare": lambda: bare(path, inputs, threads, options.seconds),
    }
    medians = {runner: [] for runner in runners}
    for turn in range(options.rounds):
        # Each round begins with another: none always runs on a machine that just rested.
        order = list(runners)
        for runner in order[turn % 4 :] + order[: turn % 4]:
            medians[runner].append(statistics.median(runners[runner]()["times_ns"]))
    result = {"model": name, "threads": threads}
    for ours, peer in (("ort", "python"), ("tract", "bare")):
        ratios = [a / b for a, b in zip(medians[ours], medians[peer])]
        result[f"{ours}_ms"] = statistics.median(medians[ours]) / 1e6
        result[f"{ours}_to_{peer}"] = statistics.median(ratios)
        result[f"{ours}_to_{peer}_range"] = [min(ratios), max(ratios)]
    print(
        f"| {name} | {threads} | {result['ort_ms']:.3f} ms | {shown(result, 'ort_to_python')} "
        f"| {result['tract_ms']:.3f} ms | {shown(result, 'tract_to_bare')} |",
        flush=True,
    )
    return result


def shown(result, key):
    low, high = result[f"{key}_range"]
    return f"{result[key]:.2f} ({low:.2f}–{high:.2f})"


def pkgtool(engine, path, threads, seconds):
    command = [PKGTOOL, "bench", path, "--engine", engine, "--threads", str(threads)]
    command += ["--rounds", "1", "--seconds", str(seconds), "--input", "ones"]
    document = output([*command, "--json", "--samples"])
    series = document["series"][0]
    return {
        "times_ns": [time * 1e6 for time in series["samples_ms"]],
        "peak": series["peak_memory_bytes"],
    }


def python(path, inputs, threads, seconds):
    return output([sys.executable, "-c", PYTHON_PEER, path, str(threads), str(seconds), *inputs])


def bare(path, inputs, threads, seconds):
    program = BARE / "target" / "release" / "bare-tract"
    return output([program, path, str(threads), str(seconds), *inputs])


def output(command):
    ran = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, check=True)
    return json.loads(ran.stdout)


# ---- Memory ----


def memory():
    path, inputs = made("weights_1gb", weights)
    size = path.stat().st_size
    runners = {
        "pkgtool, ort": lambda: pkgtool("ort", path, 1, 0.01)["peak"],
        "Python onnxruntime": lambda: python(path, inputs, 1, 0.01)["peak"],
        "pkgtool, tract": lambda: pkgtool("tract", path, 1, 0.01)["peak"],
        "bare tract": lambda: bare_peak(path, inputs),
    }
    results = []
    for name, peak in runners.items():
        peak = peak()
        results.append({"name": name, "peak_bytes": peak, "of_weights": peak / size})
        print(f"| {name} | {peak / 1e6:.0f} MB | {peak / size:.2f} |", flush=True)
    path.unlink()
    return results


def bare_peak(path, inputs):
    program = BARE / "target" / "release" / "bare-tract"
    before = subprocess.Popen(
        [program, path, "1", "0.01", *inputs], stdout=subprocess.DEVNULL
    )
    _, _, usage = os.wait4(before.pid, 0)
    return usage.ru_maxrss * 1024


# ---- Models ----


def made(name, make):
    """The model's file, made once, and its inputs as NAME=SHAPE."""
    path = CACHE / f"{name}.onnx"
    graph, inputs = make()
    if not path.exists():
        import onnx

        model = onnx.helper.make_model(
            graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8
        )
        onnx.save(model, path)
    return path, inputs


class Builder:
    """A graph that grows node by node; weights are small random numbers."""

    def __init__(self):
        import numpy
        import onnx

        self.numpy, self.onnx = numpy, onnx
        self.random = numpy.random.default_rng(0)
        self.nodes, self.weights, self.count = [], [], 0

    def weight(self, *shape, scale=0.05):
        values = (self.random.standard_normal(shape) * scale).astype("float32")
        return self.constant(values)

    def constant(self, values):
        name = self.fresh("w")
        self.weights.append(self.onnx.numpy_helper.from_array(self.numpy.asarray(values), name))
        return name

    def node(self, operator, *inputs, **attributes):
        name = self.fresh(operator.lower())
        self.nodes.append(self.onnx.helper.make_node(operator, inputs, [name], **attributes))
        return name

    def fresh(self, start):
        self.count += 1
        return f"{start}_{self.count}"

    def graph(self, inputs, output):
        helper = self.onnx.helper
        float32 = self.onnx.TensorProto.FLOAT
        values = [helper.make_tensor_value_info(n, float32, s) for n, s in inputs.items()]
        result = helper.make_tensor_value_info(output, float32, None)
        graph = helper.make_graph(self.nodes, "bench", values, [result], self.weights)
        texts = [f"{n}={'x'.join(map(str, s))}" for n, s in inputs.items()]
        return graph, texts


def mlp():
    b = Builder()
    x = "x"
    for _ in range(4):
        x = b.node("Relu", b.node("Add", b.node("MatMul", x, b.weight(1024, 1024)), b.weight(1024)))
    return b.graph({"x": [8, 1024]}, x)


def convolutions():
    b = Builder()
    x, channels = "x", 3
    for width, stride in ((32, 2), (32, 1), (64, 2), (64, 1), (128, 2)):
        weights = b.weight(width, channels, 3, 3)
        x = b.node("Conv", x, weights, b.weight(width), pads=[1, 1, 1, 1], strides=[stride, stride])
        x, channels = b.node("Relu", x), width
    x = b.node("Flatten", b.node("GlobalAveragePool", x))
    x = b.node("Gemm", x, b.weight(128, 100), b.weight(100))
    return b.graph({"x": [1, 3, 112, 112]}, x)


def transformer():
    b = Builder()
    width, heads, length = 256, 4, 128

    def split(x):
        shape = b.constant(b.numpy.array([1, length, heads, width // heads], "int64"))
        return b.node("Transpose", b.node("Reshape", x, shape), perm=[0, 2, 1, 3])

    def norm(x):
        return b.node("LayerNormalization", x, b.weight(width), b.weight(width), axis=-1)

    x = "x"
    for _ in range(2):
        y = norm(x)
        query, key, value = (split(b.node("MatMul", y, b.weight(width, width))) for _ in range(3))
        scores = b.node("MatMul", query, b.node("Transpose", key, perm=[0, 1, 3, 2]))
        scores = b.node("Mul", scores, b.constant(b.numpy.float32(0.125)))
        y = b.node("MatMul", b.node("Softmax", scores, axis=-1), value)
        y = b.node("Transpose", y, perm=[0, 2, 1, 3])
        y = b.node("Reshape", y, b.constant(b.numpy.array([1, length, width], "int64")))
        x = b.node("Add", x, b.node("MatMul", y, b.weight(width, width)))
        y = b.node("MatMul", norm(x), b.weight(width, 4 * width))
        y = b.node("Mul", y, b.node("Sigmoid", y))
        x = b.node("Add", x, b.node("MatMul", y, b.weight(4 * width, width)))
    return b.graph({"x": [1, length, width]}, x)


def quantized():
    b = Builder()
    scale, zero = b.constant(b.numpy.float32(0.02)), b.constant(b.numpy.int8(0))

    def through(x):
        return b.node("DequantizeLinear", b.node("QuantizeLinear", x, scale, zero), scale, zero)

    x, channels = through("x"), 3
    for width, stride in ((32, 2), (64, 2), (64, 1)):
        values = b.random.integers(-100, 100, (width, channels, 3, 3)).astype("int8")
        weights = b.node("DequantizeLinear", b.constant(values), scale, zero)
        x = b.node("Conv", x, weights, pads=[1, 1, 1, 1], strides=[stride, stride])
        x, channels = through(b.node("Relu", x)), width
    return b.graph({"x": [1, 3, 64, 64]}, x)


def sum_of_two():
    b = Builder()
    return b.graph({"x": [1, 64], "y": [1, 64]}, b.node("Add", "x", "y"))


def large_sum():
    b = Builder()
    return b.graph({"x": [2048, 2048], "y": [2048, 2048]}, b.node("Add", "x", "y"))


def weights():
    b = Builder()
    x = "x"
    for _ in range(16):
        x = b.node("MatMul", x, b.weight(4096, 4096))
    return b.graph({"x": [1, 4096]}, x)


MODELS = {
    "mlp": mlp,
    "convolutions": convolutions,
    "transformer": transformer,
    "quantized": quantized,
    "sum_of_two": sum_of_two,
    "large_sum": large_sum,
}

if __name__ == "__main__":
    main()
