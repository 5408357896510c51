#!/usr/bin/env python3
"""Times the tool's classifier against scikit-learn's on the same rows, in turns: train.py [ROWS [WIDTH [LABELS]]]

Both minimise the same loss (l2 = 1/C = 1) by L-BFGS until no part of the gradient is above 1e-4; scikit-learn gets
binary32 and binary64, with one thread and with its default number. The program that fits is an example
of the crate pkgtool-serve.

Needs numpy and scikit-learn (tests/setup installs them; put PKGTOOL_TEST_SKLEARN on PYTHONPATH), and cargo.
"""

import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import sklearn
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

ROOT = Path(__file__).resolve().parents[2]
TURNS = 5


def main():
    rows, width, labels = (int(it) for it in (*sys.argv[1:], *("10000", "384", "10")[len(sys.argv) - 1 :]))
    random = np.random.default_rng(1)
    centres = random.normal(size=(labels, width))
    y = random.integers(0, labels, rows)
    # As a sentence encoder's: of length 1, labels apart but not wholly.
    x = centres[y] + 8 * random.normal(size=(rows, width))
    x = (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)
    command = ["cargo", "build", "--release", "--quiet", "--package", "pkgtool-serve", "--example", "fit"]
    subprocess.run(command, check=True, cwd=ROOT)
    with tempfile.NamedTemporaryFile() as file:
        file.write(x.tobytes() + y.astype(np.uint32).tobytes())
        file.flush()
        own = [str(ROOT / "target/release/examples/fit"), file.name, str(rows), str(width), str(labels), "1"]
        peers = {
            "scikit-learn, binary32, one thread": (x, 1),
            "scikit-learn, binary32": (x, None),
            "scikit-learn, binary64, one thread": (x.astype(np.float64), 1),
        }
        times = {name: [] for name in ("pkgtool", *peers)}
        told = {}
        for _ in range(TURNS):
            said = subprocess.run(own, check=True, capture_output=True, text=True).stdout.split()
            times["pkgtool"].append(float(said[0]))
            told["pkgtool"] = int(said[2]) / rows
            for name, (given, threads) in peers.items():
                model = LogisticRegression(C=1.0, tol=1e-4, max_iter=200)
                with threadpool_limits(threads):
                    began = time.perf_counter()
                    model.fit(given, y)
                    times[name].append(time.perf_counter() - began)
                told[name] = model.score(given, y)
    print(f"{rows} rows of {width} numbers, {labels} labels; {os.cpu_count()} processors, {platform.machine()}, "
          f"scikit-learn {sklearn.__version__}; median of {TURNS} turns")
    least = min(statistics.median(times[name]) for name in times if name != "pkgtool")
    for name, seconds in times.items():
        median = statistics.median(seconds)
        print(f"  {name:36} {median * 1000:8.0f} ms  {median / least:5.2f}  accuracy {told[name]:.4f}")


if __name__ == "__main__":
    main()
