#!/usr/bin/env python3
"""Writes generated cases: python generate.py --seed N --count N DIRECTORY

Each case is a directory as tests/conformance/generate.py writes them, named by its seed and number:
the same seed gives the same cases. `told` in case.json says who told what is expected: both ONNX
Runtime and the reference evaluator, one of them, or `disputed`; then other.json holds ONNX Runtime's
answers and case.json the reference's. A process of its own makes the cases; when it dies, the case
that it was at is left out and named.
"""

import argparse
import collections
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

OPSETS = (11, 12, 13, 13, 14, 15, 16, 17, 17, 18, 18, 19, 20, 21, 21, 22)
# Bytes of address space for the process that makes cases.
MEMORY = 4 << 30
# Of cases that are graphs, not single operators.
GRAPHS = 0.4


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--only", default="", help="only cases whose label contains this")
    parser.add_argument("--inner", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("directory", type=Path)
    arguments = parser.parse_args()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    if arguments.inner:
        inner(arguments)
    else:
        print(json.dumps(generate(arguments.seed, arguments.first, arguments.count, arguments.directory, arguments.only)))


def generate(seed, first, count, directory, only=""):
    """Makes cases in processes that may die; counts of how they are told."""
    told, died, end = collections.Counter(), [], first + count
    while first < end:
        command = [sys.executable, __file__, "--inner", "--seed", str(seed), "--first", str(first)]
        command += ["--count", str(end - first), "--only", only, str(directory)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            for line in process.stdout:
                number, what = line.rstrip("\n").split(" ", 1)
                first = int(number) + 1
                told[what] += 1
        if first < end:
            died.append(first)
            first += 1
    return {"told": dict(told), "died": died}


def inner(arguments):
    # A case that takes more is left out as one that failed.
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    import numpy as np

    from build import Build, Skip, load_known, write
    from edges import EVERY, build_edge
    from graphs import build_graph
    import quantised  # noqa: F401: it adds operators
    from operators import build_operator

    known = load_known()
    start = time.monotonic()
    for number in range(arguments.first, arguments.first + arguments.count):
        rng = np.random.default_rng([arguments.seed, number])
        b = Build(rng, int(rng.choice(OPSETS)))
        try:
            with np.errstate(all="ignore"):
                if number % EVERY == EVERY - 1:
                    build_edge(b)
                else:
                    (build_graph if b.chance(GRAPHS) else build_operator)(b)
                if arguments.only not in b.label:
                    raise Skip("not asked for")
                told = write(b, arguments.directory / f"g{arguments.seed}_{number}", known)
        except Skip as skip:
            told = "skipped"
            if arguments.only and "not asked for" not in str(skip):
                print(f"{b.label}: {skip}", file=sys.stderr)
        except Exception as error:  # noqa: BLE001: one case is not worth the batch
            told = "skipped"
            print(f"g{arguments.seed}_{number} {b.label}: {type(error).__name__}: {error}", file=sys.stderr)
        print(number, told, flush=True)
    print(f"{time.monotonic() - start:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
