"""Writes small ExecuTorch programs and what ExecuTorch's own runtime answers for them.

    python3.11 -m venv venv && . venv/bin/activate
    pip install -r tests/programs/requirements.txt
    python tests/programs/export.py                       # all of tests/fixtures/programs
    python tests/programs/export.py convolution softmax   # some of them
    python tests/programs/export.py --large DIR           # real networks, random weights

README.md beside this file says what is in them.
"""

import argparse
import importlib
import logging
import os
import sys
import traceback
import warnings
from pathlib import Path

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures" / "programs"
GROUPS = (
    "xnnpack",
    "elementwise",
    "tensors",
    "layers",
    "quantized",
    "dynamic",
    "state",
    "containers",
    "language",
)


def main():
    """Writes the programs that are named, or all of them."""
    fix_chance()
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="programs; all when none is named")
    parser.add_argument("--large", metavar="DIR", type=Path, help="write the large set into DIR")
    parser.add_argument("--into", metavar="DIR", type=Path, default=FIXTURES, help="another folder")
    chosen = parser.parse_args()

    import harness

    for group in (*GROUPS, *(["networks", "zoo"] if chosen.large else [])):
        importlib.import_module(group)
    programs = harness.LARGE if chosen.large else harness.PROGRAMS
    unknown = [name for name in chosen.names if name not in programs]
    if unknown:
        sys.exit(f"no such program: {', '.join(unknown)}; there are: {', '.join(programs)}")
    folder = chosen.large or chosen.into
    failed = []
    for name in chosen.names or programs:
        harness.seed(name)
        try:
            entry = harness.write(name, programs[name](), folder)
        except Exception:
            print("".join(traceback.format_exc(chain=False)[-1500:]), file=sys.stderr)
            failed.append(name)
            continue
        harness.save([entry], folder)
        files = (entry["file"], f"{name}.npz")
        sizes = [(folder / file).stat().st_size for file in files]
        print(f"{name}: {sizes[0]} + {sizes[1]} bytes", flush=True)
    if not chosen.names:
        for what, why in harness.SKIPPED.items():
            print(f"skipped: {what}: {why}")
    for (name, label, case), error in harness.DIFFERENCES.items():
        print(f"{name}: {label}: the runtime and the network differ in {case}: {error}")
    if failed:
        sys.exit(f"not written: {', '.join(failed)}")


def fix_chance():
    """One thread, quiet exporters, and a fixed order of sets of strings."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, *sys.argv])
    sys.dont_write_bytecode = True
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    import torch

    torch.set_num_threads(1)


if __name__ == "__main__":
    main()
