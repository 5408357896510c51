"""What a validation found."""

from dataclasses import dataclass
from typing import Any, Dict, Literal, Mapping, Optional, Tuple

#: How bad a finding is. A note never makes a package wrong; a warning does where warnings are denied.
Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Position:
    """A place in a file."""

    #: From 1.
    line: int
    #: From 1, in Unicode characters.
    column: int
    #: In bytes from 0.
    offset: int


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, and where."""

    #: Stable and never reused: `PKG019`.
    code: str
    #: The rule's name: `size-mismatch`.
    rule: str
    severity: Severity
    message: str
    #: The file, as the paths that were given name it.
    path: str
    #: The place in its JSON, as a JSON pointer (RFC 6901); empty for the whole file.
    pointer: str
    start: Position
    #: Behind the last character.
    end: Position
    #: What to do about it, where the tool knows.
    help: Optional[str]
    #: The finding as the tool printed it, with what later versions add.
    raw: Mapping[str, Any]

    @property
    def line(self) -> int:
        """The line it starts in, from 1."""
        return self.start.line

    @property
    def column(self) -> int:
        """The column it starts at, from 1, in Unicode characters."""
        return self.start.column

    def __str__(self) -> str:
        text = f"{self.path}:{self.line}:{self.column}: {self.severity}[{self.code}] {self.message}"
        return f"{text} ({self.help})" if self.help else text


@dataclass(frozen=True)
class Report:
    """The outcome of a validation."""

    #: In the tool's order, which is stable.
    findings: Tuple[Finding, ...]
    #: Whether the packages pass: no errors, and no warnings where they were denied.
    ok: bool
    #: Packages that were looked at.
    packages: int
    errors: int
    warnings: int
    notes: int

    def __str__(self) -> str:
        """A line for each finding, and a line that counts them."""
        counts = ((self.errors, "error"), (self.warnings, "warning"), (self.notes, "note"))
        told = ", ".join(_count(number, word) for number, word in counts if number)
        checked = f"{_count(self.packages, 'package')} checked: {told or 'no findings'}"
        return "\n".join([*map(str, self.findings), checked])


def report(document: Dict[str, Any], ok: bool) -> Report:
    """The report of version 1 of the tool's JSON."""
    summary = document["summary"]
    return Report(
        findings=tuple(map(_finding, document["diagnostics"])),
        ok=ok,
        packages=summary["packages"],
        errors=summary["errors"],
        warnings=summary["warnings"],
        notes=summary["notes"],
    )


def _finding(entry: Dict[str, Any]) -> Finding:
    return Finding(
        code=entry["code"],
        rule=entry["rule"],
        severity=entry["severity"],
        message=entry["message"],
        path=entry["path"],
        pointer=entry["pointer"],
        start=_position(entry["span"]["start"]),
        end=_position(entry["span"]["end"]),
        help=entry.get("help"),
        raw=entry,
    )


def _position(entry: Dict[str, Any]) -> Position:
    return Position(entry["line"], entry["column"], entry["offset"])


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
