"""Times `pkgtool` against other schema checkers, and on very large model files.

    python3 tests/bench/validate.py [--runs 15] [--json FILE]
    python3 tests/bench/validate.py --against BINARY [--pkgtool BINARY] [--runs 15]

Whole processes, on the same configs, in turn (A B A B …) after one warm-up run each; medians, and
ratios of medians. The peers are installed into target/bench: `@sourcemeta/jsonschema` and
`ajv-cli` with npm, `check-jsonschema` with pip. One that cannot be installed is reported as
missing. Needs Linux, GNU time for the peak memory, and 2 GB of free disk.

The peers get the published schema; pkgtool also checks names, references, sizes, precisions and
licences. `--no-model` is on for the configs: there are files, but no models. pkgtool and
`@sourcemeta/jsonschema` are given the directory and find the configs, and once more the list of all 1000; the
other peers cannot walk and get the list.

With `--against` another build of pkgtool is the only peer, and what is compared is the processor time
(user and system) of each process: the wall clock of a busy machine cannot resolve a few per cent. Both
must be built with the same features.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / "target" / "bench"
PKGTOOL = ROOT / "target" / "release" / "pkgtool"
SCHEMA = ROOT / "schemas" / "config.schema.json"
SMALL_PROGRAM = ROOT / "packages-examples/glimpse/xnnpack/glimpse_xnnpack_fp32.pte"
NPM = ["@sourcemeta/jsonschema@16.11.0", "ajv-cli@5.0.0", "ajv-formats@3.0.1"]
PIP = ["check-jsonschema==0.39.0"]
SIZES = [1, 124, 1000]
# The peer that walks directories, as pkgtool does.
WALKS = "@sourcemeta/jsonschema --fast"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--against", type=Path, help="another build of pkgtool")
    parser.add_argument("--pkgtool", type=Path, default=PKGTOOL, help="the build that is measured")
    options = parser.parse_args()
    if options.against:
        with tempfile.TemporaryDirectory() as scratch:
            bench_builds(Path(scratch), options.pkgtool, options.against, options.runs)
        return
    subprocess.run(["cargo", "build", "--release", "--locked"], cwd=ROOT, check=True)
    CACHE.mkdir(parents=True, exist_ok=True)
    peers = install_peers()
    machine = f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}"
    results = {"machine": machine, "configs": [], "models": []}
    print(f"\n{machine}; median of {options.runs} runs\n")
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        results["configs"] = bench_configs(Path(scratch), peers, options.runs)
        results["models"] = bench_models(Path(scratch), options.runs)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


def install_peers():
    """Commands of the peers, by name, each a function from a folder and its configs to an argv."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    peers = {}
    npm = CACHE / "npm"
    npm.mkdir(exist_ok=True)
    (npm / "package.json").write_text("{}")
    if shutil.which("npm") and subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund", *NPM], cwd=npm, **quiet
    ).returncode == 0:
        machine = {"x86_64": "x86_64", "aarch64": "arm64"}.get(platform.machine(), "")
        native = npm / "node_modules/@sourcemeta/jsonschema/build/github-releases"
        native = native / f"jsonschema-linux-{machine}"
        if native.exists():
            peers[WALKS] = lambda folder, files: [
                native, "validate", "--fast", SCHEMA, folder]
        ajv = npm / "node_modules/.bin/ajv"
        peers["ajv-cli"] = lambda folder, files: [
            ajv, "validate", "--spec=draft2020", "--strict=false", "-c", "ajv-formats",
            "-s", SCHEMA, *[part for file in files for part in ("-d", file)]]
    venv = CACHE / "venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True, **quiet)
    if subprocess.run([venv / "bin/pip", "install", "-q", *PIP], **quiet).returncode == 0:
        check = venv / "bin/check-jsonschema"
        peers["check-jsonschema"] = lambda folder, files: [check, "--schemafile", SCHEMA, *files]
    for name in (WALKS, "ajv-cli", "check-jsonschema"):
        if name not in peers:
            print(f"MISSING: {name} could not be installed; its ratio is missing")
    return peers


def write_configs(folder, count):
    """So many valid packages of three variants each; returns the configs' paths."""
    configs = []
    signature = {
        "inputs": [{"shape": [1, 3, 224, 224], "dtype": "float32"}],
        "outputs": [{"shape": [1, 1000], "dtype": "float32"}],
    }
    for number in range(count):
        model = f"model_{number}"
        directory = folder / model / "xnnpack"
        directory.mkdir(parents=True)
        variants = []
        for precision in ("fp32", "int8", "8da4w"):
            file = f"{model}_xnnpack_{precision}.pte"
            (directory / file).write_bytes(bytes(4096))
            variants.append({"precision": precision, "file": file, "size_bytes": 4096,
                             "methods": {"forward": signature}})
        config = {
            "$schema": "https://pkgtool.dev/schemas/config.schema.json",
            "model": model, "family": "model", "capabilities": ["classification"],
            "backend": "xnnpack", "license": "Apache-2.0", "variants": variants,
        }
        path = directory / "config.json"
        path.write_text(json.dumps(config, indent=2))
        configs.append(path)
    return configs


def bench_configs(scratch, peers, runs):
    rows = []
    print("| configs | pkgtool ms | peer | peer ms | peer / pkgtool |\n|---|---|---|---|---|")
    for count in SIZES:
        folder = scratch / str(count)
        files = write_configs(folder, count)
        ours = [PKGTOOL, "validate", "--no-model", folder]
        for name, command in peers.items():
            slow = name != WALKS
            mine, theirs = in_turn(ours, command(folder, files), max(3, runs // 3) if slow else runs)
            rows.append({"configs": count, "peer": name, "pkgtool_ms": mine, "peer_ms": theirs})
            print(f"| {count} | {mine:.1f} | {name} | {theirs:.1f} | {theirs / mine:.1f} |")
        if count == max(SIZES) and WALKS in peers:
            rows.append(bench_named(folder, files, peers, runs))
        shutil.rmtree(folder)
    return rows


def bench_named(folder, files, peers, runs):
    """Both get every file as an argument, so neither walks directories."""
    *theirs, _ = peers[WALKS](folder, files)
    ours = [PKGTOOL, "validate", "--no-model", *files]
    mine, theirs = in_turn(ours, [*theirs, *files], runs)
    print(f"| {len(files)} by name | {mine:.1f} | {WALKS} | {theirs:.1f} | {theirs / mine:.2f} |")
    return {"configs": len(files), "named": True, "peer": WALKS, "pkgtool_ms": mine, "peer_ms": theirs}


def bench_builds(scratch, ours, theirs, runs):
    """Processor time of two builds: medians, least, and the median of the ratios of each turn."""
    print("| configs | build | other | ratio | least | turn by turn |\n|---|---|---|---|---|---|")
    for count in SIZES:
        folder = scratch / str(count)
        write_configs(folder, count)
        commands = [[build, "validate", "--no-model", folder] for build in (ours, theirs)]
        turns = []
        for turn in range(runs + 1):
            # The first run pays for cold caches.
            order = commands if turn % 2 else commands[::-1]
            times = {id(command): processor_time(command) for command in order}
            turns.append([times[id(command)] for command in commands])
        mine, other = zip(*turns[1:])
        median = statistics.median
        ratio, least = median(mine) / median(other), min(mine) / min(other)
        by_turn = median(a / b for a, b in turns[1:])
        print(f"| {count} | {median(mine):.2f} ms | {median(other):.2f} ms "
              f"| {ratio:.3f} | {least:.3f} | {by_turn:.3f} |")
        shutil.rmtree(folder)


def processor_time(command):
    """Milliseconds that one run, which must succeed, takes of all processors."""
    command = [str(part) for part in command]
    null = os.open(os.devnull, os.O_RDWR)
    actions = [(os.POSIX_SPAWN_DUP2, null, stream) for stream in (1, 2)]
    child = os.posix_spawn(command[0], command, os.environ, file_actions=actions)
    os.close(null)
    _, status, usage = os.wait4(child, 0)
    if status != 0:
        sys.exit(f"{command[0]} failed with {os.waitstatus_to_exitcode(status)}")
    return (usage.ru_utime + usage.ru_stime) * 1000


def bench_models(scratch, runs):
    rows = []
    print("\n| file | size | command | ms | peak MB |\n|---|---|---|---|---|")
    makers = [(".pte", write_program, 150_000_000), (".onnx", write_onnx, 1_500_000_000)]
    for suffix, write, large in makers:
        for size in (large // 1000, large):
            path = scratch / f"model{suffix}"
            write(path, size)
            command = [PKGTOOL, "inspect", "--json", path]
            wall = statistics.median([measure(command) for _ in range(runs + 1)][1:])
            peak = peak_megabytes(command)
            rows.append({"file": suffix, "bytes": size, "ms": wall, "peak_mb": peak})
            print(f"| {suffix} | {size / 1e6:.1f} MB | inspect | {wall:.1f} | {peak} |")
            path.unlink()
    return rows


def write_program(path, size):
    """A real program whose last segment's area is extended to `size` bytes of weights."""
    data = bytearray(SMALL_PROGRAM.read_bytes())
    base, = struct.unpack_from("<Q", data, 24)
    struct.pack_into("<Q", data, 32, size - base)
    with path.open("wb") as file:
        file.write(data)
        fill(file, size - len(data))


def write_onnx(path, size):
    """A graph of one MatMul whose weight takes `size` bytes, before the inputs and outputs."""
    def field(number, payload):
        return varint(number << 3 | 2) + varint(len(payload)) + payload

    def tensor_info(name, rows, columns):
        dims = b"".join(field(1, b"\x08" + varint(n)) for n in (rows, columns))
        return field(1, name) + field(2, field(1, b"\x08\x01" + field(2, dims)))

    width = 1000
    rows = size // 4 // width
    node = field(1, b"x") + field(1, b"w") + field(2, b"y") + field(4, b"MatMul")
    head = b"\x08" + varint(rows) + b"\x08" + varint(width) + b"\x10\x01" + field(8, b"w")
    raw = rows * width * 4
    weight = head + varint(9 << 3 | 2) + varint(raw)
    begin = field(1, node) + field(2, b"g") + varint(5 << 3 | 2) + varint(len(weight) + raw) + weight
    end = field(11, tensor_info(b"x", 1, rows)) + field(12, tensor_info(b"y", 1, width))
    opset = field(8, b"\x10" + varint(18))
    with path.open("wb") as file:
        file.write(b"\x08\x0a" + opset + varint(7 << 3 | 2) + varint(len(begin) + raw + len(end)))
        file.write(begin)
        fill(file, raw)
        file.write(end)


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def fill(file, size):
    """Writes real bytes, so that the file is not sparse."""
    block = os.urandom(1 << 20)
    while size > 0:
        file.write(block[:size])
        size -= len(block)


def in_turn(ours, theirs, runs):
    """Medians in milliseconds of both commands, run in turn after a warm-up."""
    pairs = [(measure(ours), measure(theirs)) for _ in range(runs + 1)][1:]
    return tuple(statistics.median(side) for side in zip(*pairs))


def measure(command):
    """Milliseconds of one run, which must succeed."""
    command = [str(part) for part in command]
    started = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    elapsed = (time.perf_counter() - started) * 1000
    if done.returncode != 0:
        sys.exit(f"{command[0]} failed with {done.returncode}: {done.stderr.decode()[-500:]}")
    return elapsed


def peak_megabytes(command):
    """Peak memory of one run by GNU time, whose own small process is what forks; a child of this
    one would be charged with Python's memory. `None` where GNU time is not installed."""
    if not Path("/usr/bin/time").exists():
        return None
    command = ["/usr/bin/time", "-f", "%M", *map(str, command)]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True)
    return round(int(done.stderr.split()[-1]) / 1024, 1)


if __name__ == "__main__":
    main()
