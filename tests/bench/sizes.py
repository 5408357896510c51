#!/usr/bin/env python3
"""Times runs of a model at new sizes against ONNX Runtime: the same ONNX file, threads and sizes.

    tests/setup && . target/test-environment/env && python3 tests/bench/sizes.py [MODEL] [--rounds 5] [--json FILE]

The embedded engine and ONNX Runtime take turns, a process each. Printed are medians over the rounds of three
ratios: load and first run to those of ONNX Runtime, peak memory to its, and the first run at a size to the
median of the next three, for the worst size after the first one. MODEL is the MiniLM of the tests by default.
"""

import argparse
import json
import os
import statistics
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MINILM = ROOT / "target/test-environment/minilm/xnnpack/all_minilm_l6_v2_xnnpack_fp32.onnx"
SIZES = [16, 17, 24, 25, 33, 64, 65, 100, 128, 16]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", type=Path, default=MINILM)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    command = ["cargo", "build", "--release", "-q", "--package", "pkgtool-engine", "--example", "run_sizes"]
    subprocess.run([*command, "--features", "ort"], cwd=ROOT, check=True)
    libraries = {"embedded": "-", "ort": os.environ["PKGTOOL_TEST_ORT"]}
    rounds = [
        {name: measured(arguments, library) for name, library in libraries.items()} for _ in range(arguments.rounds)
    ]
    results = {
        "first run": statistics.median(each["embedded"]["first"] / each["ort"]["first"] for each in rounds),
        "peak memory": statistics.median(each["embedded"]["memory"] / each["ort"]["memory"] for each in rounds),
        "new size": statistics.median(each["embedded"]["new"] for each in rounds),
        "new size of ONNX Runtime": statistics.median(each["ort"]["new"] for each in rounds),
        "same size": statistics.median(each["embedded"]["same"] / each["ort"]["same"] for each in rounds),
    }
    for name, ratio in results.items():
        print(f"{name}: {ratio:.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


def measured(arguments, library):
    """Runs one process; `new` is the worst ratio of a first run at a size to its later ones."""
    program = ROOT / "target/release/examples/run_sizes"
    sizes = ",".join(map(str, SIZES))
    with subprocess.Popen(
        [program, arguments.model, library, str(arguments.threads), sizes], stdout=subprocess.PIPE, text=True
    ) as process:
        lines = [json.loads(line) for line in process.stdout]
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{library}: the process ended with {process.returncode}")
    load, *runs = lines
    later = {run["size"]: statistics.median(run["times"][1:]) for run in runs}
    return {
        "first": load["load"] + runs[0]["times"][0],
        "memory": usage.ru_maxrss,
        "new": max(run["times"][0] / later[run["size"]] for run in runs[1:]),
        "same": statistics.median(later.values()),
    }


if __name__ == "__main__":
    main()
