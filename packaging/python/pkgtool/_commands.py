"""The commands, as functions."""

import json
import os
import subprocess
from typing import Any, Dict, Iterable, List, Literal, Optional, Sequence, Tuple, Union, cast

from ._author import Mended, Written
from ._binary import binary
from ._errors import BinaryNotFound, NothingFound, PkgtoolError
from ._model import ModelInfo
from ._report import Report, report

Path = Union[str, "os.PathLike[str]"]

#: Exit codes, as in `pkgtool --help`.
CLEAN, FINDINGS, NOTHING = 0, 1, 3
#: The JSON that this package reads.
VERSION = 1


def validate(
    path: Union[Path, Iterable[Path]] = ".",
    *,
    model_files: bool = True,
    deny_warnings: bool = False,
    precisions: Optional[Path] = None,
    config: Union[Path, Literal[False], None] = None,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    baseline: Optional[Path] = None,
    jobs: int = 0,
    arguments: Sequence[str] = (),
    timeout: Optional[float] = None,
) -> Report:
    """Checks packages: `pkgtool validate`.

    A directory is walked for packages, a file is always checked; several paths are checked together.

    Without `model_files`, model files are not opened. `precisions` names another precision list, `config`
    other settings than the nearest `pkgtool.toml` (`False`: none). `select` and `ignore` name rules,
    `baseline` a file of findings that are known. `jobs` is a number of threads (0: one for each processor).
    `arguments` are further options of the command line. After `timeout` seconds the tool is stopped.

    Raises `NothingFound` if there is no package, `PkgtoolError` if the tool could not do its job.
    """
    paths = _paths(path)
    command = ["validate", "--format", "json", "--jobs", str(jobs)]
    if not model_files:
        command.append("--no-model")
    if deny_warnings:
        command.append("--deny-warnings")
    if config is False:
        command.append("--no-config")
    elif config is not None:
        command += _option("config", config)
    if precisions is not None:
        command += _option("precisions", precisions)
    if baseline is not None:
        command += _option("baseline", baseline)
    for word in select:
        command += _option("select", word)
    for word in ignore:
        command += _option("ignore", word)
    code, document = _run([*command, *arguments, "--", *paths], timeout)
    return report(document, ok=code == CLEAN)


def inspect(path: Path, *, timeout: Optional[float] = None) -> ModelInfo:
    """What a model file says of itself, from its header alone: `pkgtool inspect`.

    Raises `PkgtoolError` if there is no such file, or it is no model file that can be read.
    """
    _, document = _run(["inspect", "--json", "--", os.fspath(path)], timeout)
    return cast(ModelInfo, document)


def init(
    directory: Path = ".",
    *,
    model: Optional[str] = None,
    family: Optional[str] = None,
    license: Optional[str] = None,
    capability: Union[str, Sequence[str]] = (),
    accept_guesses: bool = False,
    dry_run: bool = False,
    force: bool = False,
    arguments: Sequence[str] = (),
    timeout: Optional[float] = None,
) -> Written:
    """Writes a config for each backend's directory with model files: `pkgtool init`.

    `model`, `family`, `license` and `capability` say what files cannot tell, or not surely; with
    `accept_guesses` what is likely is taken. Nothing is written with `dry_run`; configs that are there are
    written anew only with `force`. `arguments` are further options of the command line.

    Raises `NothingFound` if there are no model files, `PkgtoolError` if something is missing, which its
    message says, or a config could not be written.
    """
    command = ["init", "--format", "json"]
    if model is not None:
        command += _option("model", model)
    if family is not None:
        command += _option("family", family)
    if license is not None:
        command += _option("license", license)
    for word in [capability] if isinstance(capability, str) else capability:
        command += _option("capability", word)
    if accept_guesses:
        command.append("--yes")
    if dry_run:
        command.append("--dry-run")
    if force:
        command.append("--force")
    _, document = _run([*command, *arguments, "--", os.fspath(directory)], timeout)
    return cast(Written, document)


def fix(
    path: Union[Path, Iterable[Path]] = ".",
    *,
    unsafe: bool = False,
    check: bool = False,
    arguments: Sequence[str] = (),
    timeout: Optional[float] = None,
) -> Mended:
    """Mends configs and keeps their formatting: `pkgtool fix`.

    With `unsafe` also what is the author's to decide. With `check` nothing is written. `arguments` are
    further options of the command line. What is left is told, and no exception.

    Raises `NothingFound` if there is no package, `PkgtoolError` if the tool could not do its job.
    """
    command = ["fix", "--format", "json"]
    if unsafe:
        command.append("--unsafe")
    if check:
        command.append("--check")
    _, document = _run([*command, *arguments, "--", *_paths(path)], timeout)
    return cast(Mended, document)


def version() -> str:
    """What `pkgtool --version` prints: the version, and the commit where it is known."""
    _, text, _ = _output(["--version"], None)
    return text.strip().partition(" ")[2]


def _paths(path: Union[Path, Iterable[Path]]) -> List[str]:
    """One path or several; never none, which to the command line would be the working directory."""
    paths = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    if not paths:
        raise ValueError("no path is given")
    return [os.fspath(each) for each in paths]


def _option(name: str, value: Path) -> List[str]:
    # In one word: a value that begins with `-` is no option then.
    return [f"--{name}={os.fspath(value)}"]


def _run(arguments: Sequence[str], timeout: Optional[float]) -> Tuple[int, Dict[str, Any]]:
    """The exit code of a command that did its job, and the JSON document that it printed."""
    code, text, command = _output(arguments, timeout)
    try:
        document = json.loads(text)
    except ValueError as error:
        message = f"{command[0]} printed no JSON ({error}); is it another program?"
        raise PkgtoolError(message, command, code) from None
    if not isinstance(document, dict) or document.get("version") != VERSION:
        message = f"{command[0]} prints another version of JSON than {VERSION}; install one that fits"
        raise PkgtoolError(message, command, code)
    return code, document


def _output(
    arguments: Sequence[str], timeout: Optional[float]
) -> Tuple[int, str, Sequence[str]]:
    """The exit code of a command that did its job, its standard output, and the command line."""
    command = [binary(), *arguments]
    try:
        ran = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="surrogateescape",
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        raise PkgtoolError(f"pkgtool was stopped after {timeout} s", command) from None
    except OSError as error:
        raise BinaryNotFound(f"{command[0]} cannot be run: {error}", command) from error
    code = ran.returncode
    if code in (CLEAN, FINDINGS):
        return code, ran.stdout, command
    said = ran.stderr.strip()
    if code == NOTHING:
        raise NothingFound(_without_prefix(said), command, code)
    if code < 0:
        raise PkgtoolError(f"pkgtool was ended by signal {-code}: {said}", command, code)
    message = _without_prefix(said) or f"pkgtool ended with {code} and said nothing"
    raise PkgtoolError(message, command, code)


def _without_prefix(said: str) -> str:
    return said[len("error: ") :] if said.startswith("error: ") else said
