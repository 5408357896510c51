"""Times `pkgtool fix` on generated packages whose configs have errors.

    python3 tests/bench/fix.py [--runs 7] [--count 1000] [--pkgtool BINARY]

Times whole processes; the configs are written again before each run. Each package has one program, and a config with a
field of an earlier revision, a stale size, no `$schema` and no methods, so each is read, fixed in rounds, written and
synchronised. Also times the next run, which finds nothing to do. Shows medians. Build with `--release` first; no
features are needed.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PKGTOOL = ROOT / "target" / "release" / "pkgtool"
PROGRAM = ROOT / "packages-examples/glimpse/xnnpack/glimpse_xnnpack_fp32.pte"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--pkgtool", type=Path, default=PKGTOOL)
    options = parser.parse_args()
    cache = ROOT / "target" / "bench"
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        folder = Path(scratch)
        configs = write_packages(folder, options.count)
        mending, again = [], []
        for _ in range(options.runs + 1):
            for path, text in configs.items():
                path.write_text(text)
            mending.append(timed(options.pkgtool, folder, options.count * 4))
            again.append(timed(options.pkgtool, folder, 0))
    print(f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}; {options.count} packages, "
          f"median of {options.runs} runs after one to warm up")
    print(f"mended:          {statistics.median(mending[1:]):.3f} s")
    print(f"nothing to mend: {statistics.median(again[1:]):.3f} s")


def timed(binary, folder, fixes):
    start = time.perf_counter()
    run = subprocess.run([binary, "fix", "--format", "json", folder], capture_output=True, check=True)
    seconds = time.perf_counter() - start
    found = json.loads(run.stdout)["summary"]["fixed"]
    assert found == fixes, f"{found} fixes, not {fixes}"
    return seconds


def write_packages(folder, count):
    """Texts of the configs by their paths."""
    configs = {}
    for number in range(count):
        model = f"model_{number}"
        directory = folder / model / "xnnpack"
        directory.mkdir(parents=True)
        file = f"{model}_xnnpack_fp32.pte"
        shutil.copy(PROGRAM, directory / file)
        config = {
            "model": model, "family": "model", "capabilities": ["classification"],
            "backend": "xnnpack", "license": "Apache-2.0",
            "variants": [{"precision": "fp32", "quantized": False, "file": file, "size_bytes": 1}],
        }
        configs[directory / "config.json"] = json.dumps(config, indent=2) + "\n"
    return configs


if __name__ == "__main__":
    main()
