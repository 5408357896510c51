#!/usr/bin/env python3
"""Times conversations with `pkgtool serve`: several at once, and turns that continue from the KV cache.

    tests/setup && python3 tests/bench/chats.py [--rounds 5] [--only 1m] [--binary FILE] [--json FILE]

The decoders are those of tests/bench/decode.py (1M parameters in float32, 100M in int4, random weights), as
packages, run by ONNX Runtime on one thread. First, 1, 2, 4 and 8 clients complete prompts of 16 tokens by 256,
all at once. Shown are tokens per second, and per CPU second of the server, of all clients together, against those
of one client. The conversations share batched runs; a second server with batch_max_size = 1 runs them without
batching. Then the time to the first token after a new prompt of 64 to 1024 tokens, and again with 16 more tokens.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "torture"))
sys.path.insert(0, str(Path(__file__).parent))

import decode  # noqa: E402
from embed import cpu_of  # noqa: E402
from server import Server  # noqa: E402

PATH = "/api/adapters/compat/completions"
CLIENTS = [1, 2, 4, 8]
PROMPTS = [64, 256, 1024]
TOKENS = 256


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=decode.MODELS)
    parser.add_argument("--binary", type=Path, default=ROOT / "target/release/pkgtool")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    python, library = decode.environment()
    # The server rejects unknown variables with the prefix of its settings.
    os.environ.pop("PKGTOOL_BENCH_PYTHON", None)
    found = {}
    for name, (precision, sizes) in decode.MODELS.items():
        if options.only not in (None, name):
            continue
        model = decode.make(python, name, precision, sizes)
        with tempfile.TemporaryDirectory(prefix="pkgtool-bench-") as home:
            package = packed(model, precision, Path(home) / "packages")
            found[name] = measured(name, sizes[-1], package, library, Path(home), options)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


def packed(model, precision, packages):
    """The decoder as a package."""
    folder = packages / "talker" / "qnn"
    folder.mkdir(parents=True)
    file = f"talker_qnn_{precision}.onnx"
    for name in ("model.onnx", "model.onnx.data", "genai_config.json"):
        target = folder / (file if name == "model.onnx" else name)
        target.symlink_to(model / name)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder.parent / name).symlink_to(model / name)
    config = {
        "$schema": "https://pkgtool.dev/schemas/config.schema.json",
        "model": "talker", "family": "talker", "capabilities": ["text-generation"],
        "backend": "qnn", "license": "apache-2.0",
        "tokenizer": "../tokenizer.json", "tokenizer_config": "../tokenizer_config.json",
        "variants": [{"precision": precision, "file": file}],
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder.parent


class Gateway:
    def __init__(self, options, package, library, home, rows):
        settings = f'ort_library = "{library}"\n[log]\nlevel = "warn"\n'
        settings += f"[services.talker]\nthreads = 1\nbatch_max_size = {rows}\ninstances = 1\n"
        self.server = Server(options.binary.resolve(), home, settings, [package])
        self.server.start()
        self.server.set_rate(1_000_000)

    def complete(self, prompt, tokens, vocabulary):
        """Seconds to the first token and to the last."""
        body = {
            "model": "local/talker", "prompt": prompt, "max_tokens": tokens, "temperature": 0,
            "stream": True, "logit_bias": {"2": -100},
        }
        connection = self.server.connect()
        headers = {"Authorization": f"Bearer {self.server.key}", "Content-Type": "application/json"}
        start = time.perf_counter()
        connection.request("POST", PATH, json.dumps(body), headers)
        reply = connection.getresponse()
        first, count = None, 0
        for line in reply:
            if line.startswith(b'data: {"error'):
                sys.exit(line.decode())
            if line.startswith(b"data: {"):
                first = first or time.perf_counter() - start
                count += 1
        if reply.status != 200 or count < tokens // 2:
            sys.exit(f"the gateway answered {reply.status} with {count} events")
        connection.close()
        return first, time.perf_counter() - start


def ids(length, begin, vocabulary):
    """A prompt that no other one begins like."""
    return [(begin * 31 + place * 7) % (vocabulary - 3) + 3 for place in range(length)]


def measured(name, vocabulary, package, library, home, options):
    gateways = {rows: Gateway(options, package, library, home / f"rows{rows}", rows) for rows in (8, 1)}
    try:
        return {
            "at_once": at_once(name, vocabulary, gateways, options.rounds),
            "first_token": first_token(name, vocabulary, gateways[8], options.rounds),
        }
    finally:
        for gateway in gateways.values():
            gateway.server.stop()


def at_once(name, vocabulary, gateways, rounds):
    begin = iter(range(10**9))
    speeds = {rows: {clients: [] for clients in CLIENTS} for rows in gateways}
    for _ in range(rounds + 1):
        for clients in CLIENTS:
            for rows, gateway in gateways.items():
                speeds[rows][clients].append(together(gateway, clients, vocabulary, begin))
    found = {}
    for rows, of_clients in speeds.items():
        # The first round loads, and tries the rows.
        for unit, place in (("second", 0), ("CPU second", 1)):
            medians = {
                clients: statistics.median(speeds[place] for speeds in those[1:])
                for clients, those in of_clients.items()
            }
            found[f"rows {rows}, tokens a {unit}"] = medians
            told = ", ".join(f"{speed:.0f} ({speed / medians[1]:.2f})" for speed in medians.values())
            print(f"{name}, rows {rows}, tokens a {unit} of 1, 2, 4, 8 clients: {told}")
    return found


def together(gateway, clients, vocabulary, begin):
    """Tokens a second, and tokens a CPU second of the server and its workers."""
    prompts = [ids(16, next(begin), vocabulary) for _ in range(clients)]
    threads = [
        threading.Thread(target=gateway.complete, args=(prompt, TOKENS, vocabulary)) for prompt in prompts
    ]
    start, before = time.perf_counter(), cpu_of(gateway.server.pid)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took, tokens = time.perf_counter() - start, clients * TOKENS
    return tokens / took, tokens / max(cpu_of(gateway.server.pid) - before, 0.01)


def first_token(name, vocabulary, gateway, rounds):
    found = {}
    for length in PROMPTS:
        fresh, again = [], []
        for turn in range(rounds):
            prompt = ids(length, 1000 + turn * len(PROMPTS) + PROMPTS.index(length), vocabulary)
            fresh.append(gateway.complete(prompt, 1, vocabulary)[0])
            longer = prompt + ids(16, turn, vocabulary)
            again.append(gateway.complete(longer, 1, vocabulary)[0])
        found[length] = [statistics.median(times) * 1000 for times in (fresh, again)]
        print(f"{name}: first token behind {length}: {found[length][0]:.1f} ms, with 16 more {found[length][1]:.1f} ms")
    return found


if __name__ == "__main__":
    main()
