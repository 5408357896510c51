#!/usr/bin/env python3
"""Writes the libraries of the console below vendor/, from their npm packages.

The packages are pinned by version and checksum. manifest.json says what each file is. It needs npm
and the command zstd.
"""

import base64
import hashlib
import io
import json
import subprocess
import tarfile
import tempfile
from pathlib import Path

VENDOR = Path(__file__).parent / "vendor"

# Name, version, checksum of the archive, licence, and files: their names in the archive and here.
PACKAGES = [
    (
        "preact",
        "11.2.0",
        "sha512-/HfHI/7N84e6GrWBJ3J280z3mLaRJiDcSvj/A+y/4AbLnND/1UlGHe1sR6oYuTGwId0nP7dqDU9OnLxMPZ7xBg==",
        "MIT",
        {"dist/preact.mjs": "preact.js", "hooks/dist/hooks.mjs": "hooks.js"},
    ),
    (
        "htm",
        "3.1.1",
        "sha512-983Vyg8NwUE7JkZ6NmOqpCZ+sh1bKv2iYTlUkzlWmA5JD2acKoxd4KVxbMmxX/85mtfdnDmTFoNKcg5DGAvxNQ==",
        "Apache-2.0",
        {"dist/htm.module.js": "htm.js"},
    ),
    (
        "uplot",
        "1.6.32",
        "sha512-KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgkMy+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw==",
        "MIT",
        {"dist/uPlot.iife.min.js": "uplot.js", "dist/uPlot.min.css": "uplot.css"},
    ),
    (
        "rapidoc",
        "9.3.8",
        "sha512-eCYEbr1Xr8OJZvVCw8SXl9zBCRoLJbhNGuG5IZTHq/RWAOq/O4MafUCuFEyZHsrhLrlUcGZMa64pyhpib8fQKQ==",
        "MIT",
        {"dist/rapidoc-min.js": "rapidoc.js.zst"},
    ),
]

# Browsers resolve names of packages only with an import map, which would be an inline script.
REPLACED = {b'"preact"': b'"./preact.js"', b"'preact'": b"'./preact.js'"}


def main():
    manifest, licences = [], []
    VENDOR.mkdir(exist_ok=True)
    for name, version, checksum, licence, files in PACKAGES:
        archive = fetched(name, version, checksum)
        for source, target in files.items():
            content = archive[f"package/{source}"]
            if target == "hooks.js":
                for old, new in REPLACED.items():
                    content = content.replace(old, new)
            if target.endswith(".js"):
                content = without_map(content)
            if target.endswith(".zst"):
                content = compressed(without_map(content))
            (VENDOR / target).write_bytes(content)
            manifest.append(
                {
                    "file": target,
                    "package": name,
                    "version": version,
                    "source": source,
                    "licence": licence,
                    "sha256": hashlib.sha256(content).hexdigest(),
                }
            )
        text = next(archive[it] for it in sorted(archive) if it.startswith("package/LICENSE"))
        licences.append(f"{name} {version} ({licence})\n\n{text.decode().strip()}\n")
    write(VENDOR / "manifest.json", json.dumps(manifest, indent=2) + "\n")
    write(VENDOR / "LICENSES.txt", ("\n" + "-" * 80 + "\n\n").join(licences))


def write(path, text):
    path.write_text(text.replace("\r\n", "\n"))


def fetched(name, version, checksum):
    """Returns the files of a package, after a check of its archive."""
    with tempfile.TemporaryDirectory() as directory:
        command = ["npm", "pack", "--silent", f"{name}@{version}"]
        subprocess.run(command, cwd=directory, check=True, stdout=subprocess.DEVNULL)
        data = next(Path(directory).glob("*.tgz")).read_bytes()
    found = "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()
    if found != checksum:
        raise SystemExit(f"{name} {version}: the checksum is {found}, expected {checksum}")
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        members = [member for member in archive if member.isfile()]
        return {member.name: archive.extractfile(member).read() for member in members}


def without_map(content):
    """Removes the reference to a source map, which browsers would look for."""
    lines = content.rstrip().split(b"\n")
    return b"\n".join(line for line in lines if not line.startswith(b"//# sourceMappingURL")) + b"\n"


def compressed(content):
    command = ["zstd", "--ultra", "-22", "--stdout", "--quiet"]
    return subprocess.run(command, input=content, check=True, stdout=subprocess.PIPE).stdout


if __name__ == "__main__":
    main()
