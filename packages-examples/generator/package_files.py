"""Writing one package: its model files, its shared files and its config."""

import json
import os
from pathlib import Path

SCHEMA = "https://pkgtool.dev/schemas/config.schema.json"


class Package:
    """One backend directory of a repository, filled variant by variant."""

    def __init__(self, repository, model, backend, size=None):
        self.repository = Path(repository)
        self.model, self.backend, self.size = model, backend, size
        self.folder = self.repository / (size or "") / backend
        self.variants = []

    def file_name(self, precision, suffix, component=None):
        """`<model>[_<size>][_<component>]_<backend>_<precision><suffix>`"""
        tokens = [self.model, self.size, component, self.backend, precision]
        return "_".join(token for token in tokens if token) + suffix

    def add(self, precision, data, signatures, suffix=".pte"):
        """A single-file variant."""
        name = self.file_name(precision, suffix)
        write(self.folder / name, data)
        self.variants.append(
            {
                "precision": precision,
                "file": name,
                "size_bytes": len(data),
                "methods": signatures,
            }
        )

    def add_components(self, precision, models, others=None, suffix=".pte"):
        """A multi-component variant: `models` maps a component to its bytes and signatures,
        `others` maps one to the path of a file that is no model, relative to the config."""
        components = dict(others or {})
        for component, (data, _) in models.items():
            components[component] = self.file_name(precision, suffix, component)
            write(self.folder / components[component], data)
        sizes = (os.path.getsize(self.folder / reference) for reference in set(components.values()))
        self.variants.append(
            {
                "precision": precision,
                "file": None,
                "components": components,
                "size_bytes": sum(sizes),
                "methods": {component: signatures for component, (_, signatures) in models.items()},
            }
        )

    def finish(self, capabilities, licence, family=None, tokenizer=None, tokenizer_config=None):
        """Writes the config."""
        config = {
            "$schema": SCHEMA,
            "model": self.model,
            "family": family or self.model,
            "size": self.size,
            "capabilities": capabilities,
            "backend": self.backend,
            "license": licence,
            "tokenizer": tokenizer,
            "tokenizer_config": tokenizer_config,
            "variants": self.variants,
        }
        config = {key: value for key, value in config.items() if value is not None}
        write(self.folder / "config.json", (formatted(config) + "\n").encode())


def write(path, data):
    """A file, with the directories above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def write_json(path, value):
    """A JSON file that is no config."""
    write(path, (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode())


def write_lines(path, lines):
    """A text file."""
    write(path, ("\n".join(lines) + "\n").encode())


def formatted(value, depth=0):
    """JSON with two spaces a level, and lists of plain values on one line."""
    inner, outer = "  " * (depth + 1), "  " * depth
    if isinstance(value, dict) and value:
        rows = [f"{json.dumps(key)}: {formatted(item, depth + 1)}" for key, item in value.items()]
        return "{\n" + ",\n".join(inner + row for row in rows) + f"\n{outer}}}"
    if isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        rows = [formatted(item, depth + 1) for item in value]
        return "[\n" + ",\n".join(inner + row for row in rows) + f"\n{outer}]"
    return json.dumps(value, ensure_ascii=False)
