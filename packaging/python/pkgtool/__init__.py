"""Checks on-device model packages, and shows what their model files say.

A thin layer over the `pkgtool` binary, which is in the wheel::

    import pkgtool

    report = pkgtool.validate("my-package")
    if not report.ok:
        raise SystemExit(str(report))

What is found in a package is data and never an exception. An exception is a failure of the tool itself:
`PkgtoolError` and what derives from it.
"""

from ._author import Config, Inferred, Mended, MendedFile, MendedSummary, Missing, PassedOver, Written
from ._binary import binary
from ._commands import fix, init, inspect, validate, version
from ._errors import BinaryNotFound, NothingFound, PkgtoolError
from ._model import (
    Dimension,
    External,
    Method,
    ModelInfo,
    Payload,
    Segment,
    Tensor,
    Value,
    Weights,
    WrongInExecutorch,
)
from ._report import Finding, Position, Report, Severity

__all__ = [
    "BinaryNotFound",
    "Config",
    "Dimension",
    "External",
    "Finding",
    "Inferred",
    "Mended",
    "MendedFile",
    "MendedSummary",
    "Method",
    "Missing",
    "ModelInfo",
    "NothingFound",
    "PassedOver",
    "Payload",
    "PkgtoolError",
    "Position",
    "Report",
    "Segment",
    "Severity",
    "Tensor",
    "Value",
    "Weights",
    "Written",
    "WrongInExecutorch",
    "binary",
    "fix",
    "init",
    "inspect",
    "validate",
    "version",
]
