#!/usr/bin/env python3
"""Times portable readings of Core ML, MLX and Vulkan programs against the same network's XNNPACK program, all lowered.

    python3 tests/programs/payloads.py --large DIR       (see tests/programs/README.md)
    python3 tests/bench/readings.py DIR [--rounds 10] [--seconds 5] [--threads 1,2] [--only NAME]
                                        [--binary FILE] [--json FILE]

For each network of DIR `pkgtool bench` runs its programs in one go on the engine in the binary, a process each, in
turns; a ratio is taken within rounds, against the XNNPACK program, with a 95 % confidence interval. `pkgtool compare`
measures the difference of each to that program on two random inputs. Needs a release build, which is made unless --binary
names one.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

from release import release_build

READ = ("coreml", "mlx", "vulkan")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--threads", default="1,2", help="with commas")
    parser.add_argument("--only", help="a network's name")
    parser.add_argument("--binary", type=Path, help="instead of a release build made now")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    options.binary = options.binary or release_build()
    reference = "_xnnpack_fp32.pte"
    paths = sorted(options.directory.glob(f"*{reference}"))
    names = [path.name.removesuffix(reference) for path in paths]
    names = [name for name in names if options.only in (None, name)]
    if not names:
        sys.exit(f"{options.directory} has no programs: write them with tests/programs/payloads.py --large")
    machine = f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}"
    print(f"{machine}; {options.rounds} rounds, {options.seconds} s each\n")
    print("| network | threads | XNNPACK | " + " | ".join(READ) + " | worst error |")
    print("|---|---|---|" + "---|" * len(READ) + "---|")
    results = []
    for name in names:
        files = {read: options.directory / f"{name}_{read}_fp32.pte" for read in READ}
        files = {read: path for read, path in files.items() if path.is_file()}
        first = options.directory / f"{name}{reference}"
        errors = {read: error(first, path, options) for read, path in files.items()}
        for threads in options.threads.split(","):
            result = bench(first, files, threads, options)
            result |= {"network": name, "threads": int(threads), "errors": errors}
            results.append(result)
            show(result)
    if options.json:
        options.json.write_text(json.dumps({"machine": machine, "results": results}, indent=2) + "\n")


def bench(first, files, threads, options):
    """The XNNPACK program's median in milliseconds, and the others' ratios."""
    command = [options.binary, "bench", first, *files.values(), "--engine", "tract", "--json"]
    command += ["--threads", threads, "--rounds", options.rounds, "--seconds", options.seconds]
    reference, *others = output(command)["series"]
    ratios = {read: one["ratio"] for read, one in zip(files, others)}
    return {"xnnpack_ms": reference["p50_ms"], "ratios": ratios}


def error(first, path, options):
    """The largest difference from the XNNPACK program, as a part of the output's range."""
    command = [options.binary, "compare", first, path, "--engine", "tract", "--json"]
    command += ["--seeds", "2", "--max-rel", "10"]
    return max(found["max_rel"] for found in output(command)["outputs"])


def output(command):
    ran = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if ran.returncode != 0:
        sys.exit(f"{command}: {ran.stderr}")
    return json.loads(ran.stdout)


def show(result):
    cells = []
    for read in READ:
        found = result["ratios"].get(read)
        cells.append(f"{found['ratio']:.2f} ({found['low']:.2f}–{found['high']:.2f})" if found else "–")
    worst = max(result["errors"].values(), default=0)
    row = [result["network"], result["threads"], f"{result['xnnpack_ms']:.2f} ms", *cells, f"{worst:.1e}"]
    print("| " + " | ".join(map(str, row)) + " |", flush=True)


if __name__ == "__main__":
    main()
