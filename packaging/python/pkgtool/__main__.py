"""`python -m pkgtool`: the binary, with the same arguments and exit code."""

import os
import subprocess
import sys

from ._binary import binary
from ._errors import BinaryNotFound

try:
    path = binary()
except BinaryNotFound as error:
    sys.exit(f"error: {error}")
command = [path, *sys.argv[1:]]
if sys.platform == "win32":
    sys.exit(subprocess.run(command).returncode)
# Signals reach the binary then, and its exit code the caller.
os.execv(path, command)
