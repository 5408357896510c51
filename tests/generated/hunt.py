#!/usr/bin/env python3
"""Makes generated cases and runs them, batch after batch, for as long as is asked.

    python hunt.py --seconds 3600 --engines tract,ort --binary target/release/pkgtool

Cases are run by the test program of this repository (`cargo test --test it --no-run`, found below
`target`, or named with --runner), which starts workers of the binary: both must be of one source.
Needs the environment of tests/setup (`. target/test-environment/env`). While one batch runs the next
is made. What differs, crashes, hangs or panics is kept below --keep, a directory for each case with
what the engines said; counts go to summary.json there after every batch.
"""

import argparse
import collections
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from generate import generate

ROOT = Path(__file__).resolve().parent.parent.parent
KEPT = {"wrong", "crash", "hang", "panic"}
TEST = "generated_cases_are_answered_rightly"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--engines", default="tract,ort")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the first batch; the next have the next")
    parser.add_argument("--batch", type=int, default=1500, help="cases of a batch")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="that make cases")
    parser.add_argument("--binary", type=Path, default=ROOT / "target/release/pkgtool")
    parser.add_argument("--runner", type=Path, help="the test program; the newest below target without it")
    parser.add_argument("--keep", type=Path, default=ROOT / "target/generated")
    arguments = parser.parse_args()
    runner = arguments.runner or newest_runner()
    if not arguments.binary.is_file():
        sys.exit(f"{arguments.binary} is not there: cargo build --release, or name another with --binary")
    arguments.keep.mkdir(parents=True, exist_ok=True)
    counts = Counts(arguments)
    end = time.monotonic() + arguments.seconds
    seed = arguments.seed
    with ThreadPoolExecutor(1) as ahead, tempfile.TemporaryDirectory() as scratch:
        waiting = ahead.submit(make, seed, arguments, Path(scratch))
        while True:
            directory, made = waiting.result()
            is_last = time.monotonic() >= end
            if not is_last:
                waiting = ahead.submit(make, seed + 1, arguments, Path(scratch))
            run(runner, directory, arguments)
            counts.add(seed, directory, made)
            shutil.rmtree(directory)
            if is_last:
                break
            seed += 1
    print(f"what was kept is in {arguments.keep}")


def newest_runner():
    found = [
        path
        for profile in ("release", "debug")
        for path in (ROOT / "target" / profile / "deps").glob("it-*")
        if os.access(path, os.X_OK) and path.is_file() and not path.suffix
    ]
    for path in sorted(found, key=lambda path: path.stat().st_mtime, reverse=True):
        # Crates have test programs of the same name.
        if TEST in subprocess.run([path, "--list"], capture_output=True, text=True, check=False).stdout:
            return path
    sys.exit(f"no test program has {TEST}: cargo test --test it --no-run, or name one with --runner")


def make(seed, arguments, scratch):
    """Makes a batch in several processes."""
    directory = scratch / f"batch-{seed}"
    share = -(-arguments.batch // arguments.processes)
    with ThreadPoolExecutor(arguments.processes) as pool:
        parts = pool.map(
            lambda part: generate(seed, part * share, share, directory),
            range(arguments.processes),
        )
        directory.mkdir(exist_ok=True)
        told, died = collections.Counter(), []
        for part in parts:
            told.update(part["told"])
            died += part["died"]
    return directory, {"told": told, "died": died}


def run(runner, directory, arguments):
    environment = {
        **os.environ,
        "GENERATED_CASES": str(directory),
        "GENERATED_ENGINES": arguments.engines,
        "GENERATED_BINARY": str(arguments.binary.resolve()),
    }
    command = [str(runner), TEST]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"the test program failed:\n{done.stdout}{done.stderr}")


class Counts:
    """What came of all batches."""

    def __init__(self, arguments):
        self.keep = arguments.keep
        self.start = time.monotonic()
        self.told = collections.Counter()
        self.died = []
        self.engines = {engine: collections.Counter() for engine in arguments.engines.split(",")}

    def add(self, seed, directory, made):
        self.told.update(made["told"])
        self.died += [f"g{seed}_{number}" for number in made["died"]]
        outcomes = json.loads((directory / "outcomes.json").read_text())
        for name, said in outcomes.items():
            for engine, count in self.engines.items():
                count[said[engine][0]] += 1
            if any(said[engine][0] in KEPT for engine in self.engines):
                shutil.copytree(directory / name, self.keep / name, dirs_exist_ok=True)
                (self.keep / name / "said.json").write_text(json.dumps(said, indent=1))
        summary = {
            "seconds": round(time.monotonic() - self.start),
            "tried": sum(count for told, count in self.told.items() if told != "skipped"),
            "told by": dict(self.told),
            # ONNX Runtime's process, or the reference's, died in the middle of these.
            "died": self.died,
            "engines": {
                engine: {
                    "passed": count["pass"],
                    "refused": count["unsupported"],
                    "failed": count["failed"],
                    "different": count["wrong"],
                    # Different as known.json says.
                    "known": count["known"],
                    "crashed": count["crash"],
                    "hung": count["hang"],
                    "panicked": count["panic"],
                }
                for engine, count in self.engines.items()
            },
        }
        (self.keep / "summary.json").write_text(json.dumps(summary, indent=1))
        print(json.dumps(summary), flush=True)


if __name__ == "__main__":
    main()
