"""Failures of the tool itself."""

from typing import Optional, Sequence


class PkgtoolError(Exception):
    """The tool could not do its job: a path that does not exist, a wrong option, a broken installation.

    The message is what the tool said.
    """

    #: The command line that was run; empty if none was.
    command: Sequence[str]
    #: Its exit code, below zero for the signal that ended it; `None` if it did not end by itself.
    exit_code: Optional[int]

    def __init__(
        self, message: str, command: Sequence[str] = (), exit_code: Optional[int] = None
    ) -> None:
        super().__init__(message)
        self.command = tuple(command)
        self.exit_code = exit_code


class BinaryNotFound(PkgtoolError):
    """There is no `pkgtool` binary, or the one that `PKGTOOL_BIN` names cannot be run."""


class NothingFound(PkgtoolError):
    """There was nothing to check: no package lies at the path."""
