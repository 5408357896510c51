#!/usr/bin/env python3
"""Times `inspect` and `validate` of programs with large payloads, a delegate each, and takes their peak memory.

    python3 tests/bench/payloads.py [--runs 15] [--megabytes 150] [--binary FILE] [--directory DIR] [--json FILE]

The programs are written if DIR does not have them. Four are a linear layer of `--megabytes`, exported for each
backend. That needs torch, coremltools and executorch with its exporters (tests/programs/README.md); without them these
programs are skipped with a message. One is a program of Core ML of tests/fixtures with a constant of that
size inside the model's description, where no exporter puts one. Memory is the largest resident set of the whole
process. Needs Linux and a release build, which is made unless --binary names one.
"""

import argparse
import json
import os
import platform
import statistics
import struct
import subprocess
import sys
import time
from pathlib import Path

from release import release_build

ROOT = Path(__file__).resolve().parents[2]
PAYLOADS = ROOT / "tests" / "fixtures" / "payloads"
BACKENDS = ["coreml", "mlx", "vulkan", "xnnpack"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--megabytes", type=int, default=150)
    parser.add_argument("--binary", type=Path, help="instead of a release build made now")
    parser.add_argument("--directory", type=Path, default=ROOT / "target" / "bench-payloads")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    options.binary = options.binary or release_build()
    options.directory.mkdir(parents=True, exist_ok=True)
    machine = f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}"
    print(f"{machine}; medians of {options.runs} runs\n")
    print("| program | size | inspect | peak memory | validate | peak memory |")
    print("|---|---|---|---|---|---|")
    results = []
    for name, backend, path in programs(options):
        inspected = measure([options.binary, "inspect", path], options.runs)
        package = package_of(path, backend, options.binary, options.directory)
        validated = measure([options.binary, "validate", package], options.runs)
        size = path.stat().st_size
        (a, b), (c, d) = inspected, validated
        print(f"| {name} | {size / 1e6:.0f} MB | {a:.1f} ms | {b:.1f} MB | {c:.1f} ms | {d:.1f} MB |", flush=True)
        entry = {"program": name, "size_bytes": size, "inspect_ms": a, "inspect_mb": b}
        results.append(entry | {"validate_ms": c, "validate_mb": d})
    if options.json:
        options.json.write_text(json.dumps({"machine": machine, "results": results}, indent=2) + "\n")


def measure(command, runs):
    """The median of wall times in milliseconds, and of peaks in megabytes."""
    times, peaks = [], []
    for _ in range(runs + 1):
        start = time.perf_counter()
        process = subprocess.Popen(
            [str(part) for part in command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        errors = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        took = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        # `validate` ends with 1 where it found faults.
        if process.returncode not in (0, 1):
            sys.exit(f"{command}: {errors.decode()}")
        times.append(took * 1000)
        peaks.append(usage.ru_maxrss * 1024 / 1e6)
    # The first one fills the system's cache.
    return statistics.median(times[1:]), statistics.median(peaks[1:])


def package_of(path, backend, binary, directory):
    """A package that names the program."""
    package = directory / f"package-{path.stem}"
    folder = package / backend
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / path.name
    if not link.exists():
        os.link(path, link)
    inspected = subprocess.run([binary, "inspect", path, "--json"], capture_output=True, check=True)
    said = json.loads(inspected.stdout)["methods"]["forward"]
    method = {
        side: [{"shape": value["shape"], "dtype": value["dtype"]} for value in said[side]]
        for side in ("inputs", "outputs")
    }
    config = {
        "model": "large",
        "family": "large",
        "capabilities": ["feature-extraction"],
        "backend": backend,
        "license": "mit",
        "variants": [{"precision": "fp32", "file": path.name, "methods": {"forward": method}}],
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    return package


def programs(options):
    """Names, backends and files."""
    size = options.megabytes * 1_000_000
    for backend in BACKENDS:
        path = options.directory / f"exported_{backend}_{options.megabytes}.pte"
        if path.exists() or export(backend, size, path):
            yield f"{backend}, exported", backend, path
    path = options.directory / f"inside_coreml_{options.megabytes}.pte"
    if not path.exists():
        # Peaks of processes begin with what this one holds when it starts them, so it holds no programs.
        script = [sys.executable, __file__, "--inside-only", str(size), str(path)]
        subprocess.run(script, check=True)
    yield "coreml, inside the description", "coreml", path


def export(backend, size, path):
    """Exports a linear layer of so many bytes, if that can be done here."""
    script = [sys.executable, __file__, "--export-only", backend, str(size), str(path)]
    ran = subprocess.run(script, capture_output=True, text=True)
    if ran.returncode != 0:
        print(f"{backend} was not exported: {ran.stderr.splitlines()[-1:]}", file=sys.stderr)
    return ran.returncode == 0


def export_here(backend, size, path):
    sys.path.insert(0, str(ROOT / "tests" / "programs"))
    import torch
    from executorch.exir import to_edge_transform_and_lower

    width = int((size / 4) ** 0.5)
    torch.manual_seed(7)
    module = torch.nn.Linear(width, width).eval()
    if backend == "xnnpack":
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

        lowering = {"partitioner": [XnnpackPartitioner()]}
    else:
        import payload_networks
        from payloads import lowering as lowering_of

        lowering = lowering_of(backend, "fp32", payload_networks.mlp())
    exported = torch.export.export(module, (torch.randn(1, width),))
    program = to_edge_transform_and_lower(exported, **lowering).to_executorch()
    Path(path).write_bytes(program.buffer)


def inside(fixture, size):
    """A program whose model has one more constant, of so many bytes. Its payload is its only segment."""
    program = bytearray(fixture.read_bytes())
    assert program[8:12] == b"eh00"
    (begin,) = struct.unpack_from("<Q", program, 24)
    (length,) = struct.unpack_from("<Q", program, 32)
    payload = bytes(program[begin : begin + length])
    listing, end = json.JSONDecoder().raw_decode(payload[::-1].decode("latin-1"))
    files = payload[: len(payload) - end]
    (model,) = [node for node in listing["nodes"] if node["name"] == "model.mlmodel"]
    old = region(files, model)
    new = with_constant(old, size)
    # The model becomes the last file, so that no other one moves.
    model["dataRegion"] = {"offset": len(files), "size": len(new)}
    payload = files + new + json.dumps(listing).encode()[::-1]
    at = program.index(struct.pack("<Q", length), 40, begin)
    struct.pack_into("<Q", program, at, len(payload))
    struct.pack_into("<Q", program, 32, len(payload))
    return bytes(program[:begin]) + payload


def region(files, node):
    begin = node["dataRegion"]["offset"]
    return files[begin : begin + node["dataRegion"]["size"]]


def with_constant(model, size):
    """The model's message with a constant in the first block of its function."""
    floats = field(1, field(1, field(1, bytes(size // 4 * 4))))
    dims = field(3, field(1, bytes([0x08]) + varint(size // 4)))
    kind = field(1, bytes([0x08, 11, 0x10, 1]) + dims)
    result = field(3, field(1, b"inside") + field(2, kind))
    value = field(5, field(1, b"val") + field(2, field(2, kind) + field(3, floats)))
    operation = field(3, field(1, b"const") + result + value)
    # program, an entry of its functions, its function, an entry of its blocks, its block
    return appended(model, [502, 2, 2, 3, 2], operation)


def appended(message, path, content):
    """The message with content at the end of the message that a path of fields leads to."""
    if not path:
        return message + content
    out, at = b"", 0
    done = False
    while at < len(message):
        begin = at
        tag, at = read_varint(message, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            _, at = read_varint(message, at)
        elif wire == 2:
            length, at = read_varint(message, at)
            at += length
            if number == path[0] and not done:
                done = True
                out += field(number, appended(message[at - length : at], path[1:], content))
                continue
        else:
            at += 8 if wire == 1 else 4
        out += message[begin:at]
    assert done, path
    return out


def field(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out + bytes([value]))


def read_varint(message, at):
    value = shift = 0
    while True:
        value |= (message[at] & 0x7F) << shift
        shift += 7
        at += 1
        if message[at - 1] < 0x80:
            return value, at


if __name__ == "__main__":
    if sys.argv[1:2] == ["--export-only"]:
        export_here(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    elif sys.argv[1:2] == ["--inside-only"]:
        Path(sys.argv[3]).write_bytes(inside(PAYLOADS / "mlp_coreml_fp32.pte", int(sys.argv[2])))
    else:
        main()
