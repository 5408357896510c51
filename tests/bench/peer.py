"""Python environments for the peers of benchmarks."""

import subprocess
import sys


def peer_python(home, packages):
    """A Python with these packages, in an environment of its own at `home`."""
    python = home / "bin" / "python"
    if not python.is_file():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages], check=True)
    return python
