"""What was written: the documents of `pkgtool init --format json` and `pkgtool fix --format json`.

Version 1 of contracts that only grow.
"""

from typing import Any, Dict, List, Optional, TypedDict


class Inferred(TypedDict):
    """A field of a config, and from what its value was inferred."""

    #: The field, as a JSON pointer.
    pointer: str
    value: Any
    evidence: str
    #: Whether it is only likely.
    guess: bool


class Missing(TypedDict):
    """What the model files do not say, and nobody did."""

    field: str
    #: The option that says it.
    flag: str
    why: str
    proposal: Optional[str]


class Config(TypedDict):
    """A config that was written, or would be."""

    path: str
    written: bool
    #: Why it could not be written.
    error: Optional[str]
    fields: List[Inferred]
    missing: List[Missing]
    remarks: List[str]
    #: What `validate` would find in it.
    findings: List[Dict[str, Any]]
    #: Its text; `None` while something is missing.
    config: Optional[str]


class PassedOver(TypedDict):
    """What got no config."""

    path: str
    reason: str


class Written(TypedDict):
    """The outcome of `init`."""

    version: int
    configs: List[Config]
    passed_over: List[PassedOver]


class MendedSummary(TypedDict):
    """Numbers of `fix`."""

    #: Files that were looked at.
    checked: int
    fixed: int
    #: Files with something that was fixed.
    files: int
    refused: int
    #: Findings that are left.
    left: int
    errors: int
    #: Whether files were written at all.
    written: bool


class MendedFile(TypedDict):
    """A file, and what was done to it."""

    path: str
    written: bool
    #: With `code`, `rule`, `title` and `applicability`.
    fixed: List[Dict[str, str]]
    #: With `from` and `to`.
    renamed: List[Dict[str, str]]
    #: Why it was left as it is.
    refused: Optional[str]


class Mended(TypedDict):
    """The outcome of `fix`."""

    version: int
    summary: MendedSummary
    files: List[MendedFile]
    #: Findings that are left, and why.
    left: List[Dict[str, Any]]
