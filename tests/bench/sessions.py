#!/usr/bin/env python3
"""How sessions of `pkgtool serve` share the machine: each service asked alone, then both at once.

    python3 tests/programs/export.py --large DIR       (see tests/programs/README.md)
    tests/setup && python3 tests/bench/sessions.py DIR [--rounds 5] [--seconds 3] [--binary FILE] [--json FILE]

Two services of one text encoder, then a text encoder beside a small MLP, each with one client that sends its next
request after every answer. A share is a service's rate beside the other, divided by its rate alone. On one machine,
halves are fair, and the sum of the two shares is the part of the machine's throughput that remains. The peer is ONNX Runtime
on ONNX exports of the same networks in the same gateway. Needs Linux and wrk (Debian: apt-get install wrk).
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "tests" / "bench"
sys.path[:0] = [str(BENCH), str(ROOT / "tests" / "torture")]

from load import LoadError, Target, require_wrk, run, saturate  # noqa: E402
from release import release_build  # noqa: E402
from server import Server, ServerError, predict_path  # noqa: E402

RUNTIME = ROOT / "target" / "test-environment" / "ort" / "onnxruntime" / "capi"
SETTINGS = '[log]\nlevel = "warn"\n'

TOKENS = {"shape": [1, 64], "data": [1] * 64}
BODIES = {
    "minilm_l6": {"inputs": [TOKENS, TOKENS]},
    "mlp_1024": {"inputs": [{"shape": [1, 1024], "data": [0.5] * 1024}]},
}
PAIRS = (("minilm_l6", "minilm_l6"), ("minilm_l6", "mlp_1024"))
# The models that each engine serves: a gateway without ExecuTorch runs programs by the embedded one.
SUFFIXES = {"tract": ".pte", "ort": ".onnx"}
BACKEND = "xnnpack"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3, help="of each load")
    parser.add_argument("--binary", type=Path, help="instead of a release build made now")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    options.binary = options.binary or release_build()
    # The embedded engine is to run the programs, whatever else the machine has.
    os.environ.pop("PKGTOOL_EXECUTORCH_DIR", None)
    os.environ.setdefault("ORT_DYLIB_PATH", str(next(RUNTIME.glob("libonnxruntime.so*"), "")))
    print(f"\n{os.cpu_count()} cores; {options.rounds} rounds of {options.seconds} s a load\n")
    print("| engine | services | alone, requests/s | beside each other | shares | together | p99 alone | beside |")
    print("|---|---|---|---|---|---|---|---|")
    try:
        require_wrk()
        results = [measure(engine, pair, options) for pair in PAIRS for engine in SUFFIXES]
    except (LoadError, ServerError) as error:
        sys.exit(f"the benchmark failed: {error}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


def measure(engine, pair, options):
    with tempfile.TemporaryDirectory(prefix="pkgtool-bench-") as home:
        home = Path(home)
        names = [f"service{at}" for at in range(len(pair))]
        for name, network in zip(names, pair):
            package(home / "packages", name, network, engine, options)
        server = Server(options.binary, home / "server", SETTINGS, [home / "packages"])
        try:
            server.start()
            server.set_rate(1_000_000)
            # A running server looks at limits a while later; a new one at once.
            server.stop()
            server.start()
            targets = [
                Target(server.port, "POST", predict_path(name), server.headers, json.dumps(BODIES[network]))
                for name, network in zip(names, pair)
            ]
            for target in targets:
                saturate(target, 1, 1)
            rounds = [one_round(targets, options.seconds) for _ in range(options.rounds)]
        finally:
            server.kill()
    return tell(engine, pair, rounds)


def package(directory, name, network, engine, options):
    """A package of one model, whose config the tool writes."""
    suffix = SUFFIXES[engine]
    home = directory / name / BACKEND
    home.mkdir(parents=True)
    file = home / f"{name}_{BACKEND}_fp32{suffix}"
    shutil.copy(options.directory / f"{network}{suffix}", file)
    command = [options.binary, "init", directory / name, "--family", name, "--license", "MIT"]
    run(list(map(str, [*command, "--capability", "classification"])))


def one_round(targets, seconds):
    """Measures the rate of each service alone, then beside the other."""
    alone = [saturate(target, 1, seconds) for target in targets]
    with ThreadPoolExecutor(len(targets)) as pool:
        beside = list(pool.map(lambda target: saturate(target, 1, seconds), targets))
    return alone, beside


def tell(engine, pair, rounds):
    def medians(side, key):
        return [statistics.median(found[side][at][key] for found in rounds) for at in range(len(pair))]

    shares = [
        statistics.median(beside[at]["per_second"] / alone[at]["per_second"] for alone, beside in rounds)
        for at in range(len(pair))
    ]
    result = {
        "engine": engine,
        "networks": pair,
        "alone": medians(0, "per_second"),
        "beside": medians(1, "per_second"),
        "shares": shares,
        "alone_p99_us": medians(0, "p99_us"),
        "beside_p99_us": medians(1, "p99_us"),
    }

    def row(values, form):
        return ", ".join(form(value) for value in values)

    def rate(value):
        return f"{value:,.0f}"

    def time(value):
        return f"{value / 1000:.2f} ms"

    print(
        f"| {engine} | {', '.join(pair)} | {row(result['alone'], rate)} | {row(result['beside'], rate)} "
        f"| {row(shares, '{:.2f}'.format)} | {sum(shares):.2f} "
        f"| {row(result['alone_p99_us'], time)} | {row(result['beside_p99_us'], time)} |",
        flush=True,
    )
    return result


if __name__ == "__main__":
    main()
