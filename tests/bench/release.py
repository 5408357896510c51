"""The release build that benchmarks measure when no binary is given."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def release_build():
    """Builds the binary and returns its path."""
    subprocess.run(["cargo", "build", "--release", "--locked"], cwd=ROOT, check=True)
    return ROOT / "target" / "release" / "pkgtool"
