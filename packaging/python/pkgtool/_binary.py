"""Where the binary is."""

import os
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Iterator

from ._errors import BinaryNotFound

#: Names another binary than the installed one.
VARIABLE = "PKGTOOL_BIN"


def binary() -> str:
    """The path of the binary.

    That of the environment variable `PKGTOOL_BIN`, else the one that was installed with this package, else
    the first on `PATH`. Raises `BinaryNotFound`.
    """
    named = os.environ.get(VARIABLE)
    if named:
        found = shutil.which(named)
        if found is None:
            raise BinaryNotFound(
                f"{VARIABLE} is {named!r}, which is no file that can be executed; "
                "unset it to use the installed binary"
            )
        return found
    for directory in _installed():
        found = shutil.which("pkgtool", path=str(directory))
        if found is not None:
            return found
    found = shutil.which("pkgtool")
    if found is None:
        raise BinaryNotFound(
            "there is no pkgtool binary, neither beside this package nor on PATH; "
            f"reinstall the package, or name a binary in {VARIABLE}"
        )
    return found


def _installed() -> Iterator[Path]:
    """Where installers put the commands of a package."""
    # `pip install --target DIR` puts them into DIR/bin. Looked at first: it is the nearest.
    yield Path(__file__).resolve().parent.parent / "bin"
    yield Path(sysconfig.get_path("scripts"))
    # `pip install --user`.
    if sys.version_info >= (3, 10):
        scheme = sysconfig.get_preferred_scheme("user")
    elif sys.platform == "win32":
        scheme = "nt_user"
    else:
        scheme = "posix_user"
    yield Path(sysconfig.get_path("scripts", scheme=scheme))
