"""Times keystrokes in `pkgtool lsp`: from an edit to the findings that answer it.

    python3 tests/bench/lsp.py [--pkgtool BINARY] [--lines 2000] [--keys 400] [--json FILE]

A config of about `--lines` lines references real model files, the components of one variant. Letters are typed into
it and deleted again one by one, alternately in harmless places and in places where they break the text. Each edit waits
for the findings of its version. Shown are the median and the 95th percentile, the time of the first check, which reads
all headers, and the time of completion and hover in the same text. Keystrokes also show the processor time, which
distinguishes a busy machine from a slow server. Needs Linux.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PKGTOOL = ROOT / "target" / "release" / "pkgtool"
PROGRAM = ROOT / "tests/fixtures/models/add_linear_xnnpack_fp32.pte"
SCHEMA = "https://pkgtool.dev/schemas/config.schema.json"
# Lines of one component, as `config` writes it.
PART_LINES = 12


class Server:
    def __init__(self, binary):
        self.process = subprocess.Popen(
            [binary, "lsp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.id = 0

    def tell(self, method, params, **more):
        body = json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **more}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.process.stdin.flush()

    def ask(self, method, params):
        self.id += 1
        self.tell(method, params, id=self.id)
        return self.until(lambda message: message.get("id") == self.id)

    def until(self, fits):
        while True:
            length = 0
            while line := self.process.stdout.readline().strip():
                length = int(line.split(b":")[1])
            if not length:
                sys.exit("the server has ended")
            message = json.loads(self.process.stdout.read(length))
            if fits(message):
                return message

    def processor_time(self):
        """Seconds of all its threads: what a busy machine cannot change much."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def findings(self, version):
        published = "textDocument/publishDiagnostics"
        return self.until(
            lambda message: message.get("method") == published
            and message["params"]["version"] == version
        )["params"]["diagnostics"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pkgtool", type=Path, default=PKGTOOL)
    parser.add_argument("--lines", type=int, default=2000)
    parser.add_argument("--keys", type=int, default=400)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        results = bench(Path(scratch), options)
    for name, value in results.items():
        print(f"{name:<24} {value:>10.2f}" if isinstance(value, float) else f"{name:<24} {value:>10}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


def bench(directory, options):
    path = directory / "tiny" / "xnnpack" / "config.json"
    path.parent.mkdir(parents=True)
    text = config(path.parent, max(1, (options.lines - 18) // PART_LINES))
    path.write_text(text)
    server = Server(options.pkgtool)
    server.ask(
        "initialize", {"processId": None, "rootUri": directory.as_uri(), "capabilities": {}}
    )
    server.tell("initialized", {})
    document = {"uri": path.as_uri(), "languageId": "json", "version": 0, "text": text}
    started = time.perf_counter()
    server.tell("textDocument/didOpen", {"textDocument": document})
    clean = server.findings(0)
    first = milliseconds(started)
    assert not clean, clean[:3]
    lines = text.splitlines()
    middle = next(i for i in range(len(lines) // 2, len(lines)) if "float32" in lines[i])
    # Into white space, where it breaks the text; into a string, where it makes a finding.
    places = [(middle, 0), (middle, lines[middle].index("float32") + 3)]
    times, broken, version = [], 0, 0
    spent_before = server.processor_time()
    for key in range(options.keys):
        line, character = places[key // 2 % 2]
        start = {"line": line, "character": character}
        end = {"line": line, "character": character + key % 2}
        change = {"range": {"start": start, "end": end}, "text": "" if key % 2 else "x"}
        version += 1
        params = {
            "textDocument": {"uri": path.as_uri(), "version": version},
            "contentChanges": [change],
        }
        started = time.perf_counter()
        server.tell("textDocument/didChange", params)
        found = server.findings(version)
        times.append(milliseconds(started))
        broken += found != clean
    spent_on_keys = server.processor_time() - spent_before
    assert broken == options.keys // 2, "every other key changes what is found"
    place = {"textDocument": {"uri": path.as_uri()}, "position": {"line": middle, "character": 30}}
    asked = {}
    for method in "completion", "hover":
        spent = []
        for _ in range(50):
            started = time.perf_counter()
            server.ask(f"textDocument/{method}", place)
            spent.append(milliseconds(started))
        asked[f"{method}, median ms"] = statistics.median(spent)
    server.ask("shutdown", None)
    server.tell("exit", None)
    server.process.wait(60)
    return {
        "lines": len(lines),
        "kilobytes": len(text) // 1024,
        "first check, ms": first,
        "keystroke, median ms": statistics.median(times),
        "keystroke, p95 ms": sorted(times)[int(len(times) * 0.95)],
        "keystroke, processor ms": spent_on_keys * 1000 / options.keys,
        **asked,
    }


def milliseconds(started):
    return (time.perf_counter() - started) * 1000


def config(directory, count):
    """A config of one variant with so many components, and their files."""
    tensor = '{ "shape": [2, %d], "dtype": "float32" }'
    files, methods, size = [], [], 0
    for i in range(count):
        file = f"tiny_part{i}_xnnpack_fp32.pte"
        # Files of one content would be a finding; what stands behind a program is nobody's.
        content = PROGRAM.read_bytes() + bytes(i)
        (directory / file).write_bytes(content)
        size += len(content)
        files.append(f'        "part{i}": "{file}"')
        inputs = f"[\n              {tensor % 8},\n              {tensor % 4}\n            ]"
        outputs = f"[\n              {tensor % 4}\n            ]"
        methods.append(
            f'        "part{i}": {{\n          "forward": {{\n'
            f'            "inputs": {inputs},\n            "outputs": {outputs}\n'
            "          }\n        }"
        )
    return (
        f'{{\n  "$schema": "{SCHEMA}",\n  "model": "tiny",\n  "family": "tiny",\n'
        '  "capabilities": ["classification"],\n  "backend": "xnnpack",\n  "license": "MIT",\n'
        f'  "variants": [\n    {{\n      "precision": "fp32",\n      "size_bytes": {size},\n'
        '      "components": {\n' + ",\n".join(files) + "\n      },\n"
        '      "methods": {\n' + ",\n".join(methods) + "\n      }\n    }\n  ]\n}\n"
    )


if __name__ == "__main__":
    main()
