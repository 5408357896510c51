#!/usr/bin/env python3
"""Times embeddings: `pkgtool serve` against sentence-transformers with its ONNX backend, in one run.

    python3 tests/bench/embed.py [--package DIR] [--texts 256] [--rounds 5] [--batch 1,32] [--json FILE]
                                 [--binary FILE] [--python FILE]

Both run the same ONNX file by the same library (ONNX Runtime) on the same threads. DIR is the package of
all-MiniLM-L6-v2 that tests/setup makes. The peer is installed below target/ first; --python names a Python
that already has it. Texts go to pkgtool over HTTP, one connection, and to sentence-transformers by a call in
its own process: pkgtool's figure includes the gateway. The two take turns, round by round; a figure is the
median of the rounds, in texts per second, and the ratio is of the same rounds. Texts per CPU second count the
processor time of the processes.
"""

import argparse
import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "torture"))

from peer import peer_python  # noqa: E402
from server import Server, predict_path  # noqa: E402

VENV = ROOT / "target" / "bench-embed"
PEER = "sentence-transformers[onnx]==5.7.0"
SERVICE = "all_minilm_l6_v2"
WORDS = (
    "the a model package text river house small large quick brown fox dog jumps over lazy data tensor "
    "weights runs phone night morning city market earnings weather capital language music teacher"
).split()


def main():
    options = arguments()
    python = options.python or peer_python(VENV, [PEER])
    texts = sentences(options.texts)
    document = {
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}",
        "texts": len(texts),
        "rounds": options.rounds,
        "batches": {},
    }
    with tempfile.TemporaryDirectory(prefix="pkgtool-bench-") as home:
        ours, theirs = Gateway(options, Path(home)), Peer(python, options.package, Path(home))
        try:
            agree(ours, theirs, texts)
            for batch in options.batch:
                document["batches"][batch] = compare(ours, theirs, texts, batch, options.rounds)
        finally:
            ours.stop()
            theirs.stop()
    if options.json:
        options.json.write_text(json.dumps(document, indent=2) + "\n")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--package", type=Path, default=ROOT / "target/test-environment/minilm")
    parser.add_argument("--texts", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", default="1,32")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--binary", type=Path, default=ROOT / "target/release/pkgtool")
    parser.add_argument("--python", type=Path)
    options = parser.parse_args()
    options.batch = [int(size) for size in options.batch.split(",")]
    if not (options.package / "xnnpack" / "config.json").is_file():
        sys.exit(f"{options.package} is not a package: run tests/setup, or name one with --package")
    if not options.binary.is_file():
        sys.exit(f"{options.binary} is not there: cargo build --release, or name one with --binary")
    return options


def sentences(count):
    """Texts of 4 to 60 words; the same in every run."""
    chance = random.Random(7)
    return [" ".join(chance.choices(WORDS, k=chance.randint(4, 60))) for _ in range(count)]


class Gateway:
    """Our side."""

    def __init__(self, options, home):
        settings = '[log]\nlevel = "warn"\n'
        self.server = Server(options.binary.resolve(), home / "server", settings, [options.package])
        self.server.start()
        self.server.set_rate(1_000_000)
        self.connection = self.server.connect(timeout=300)

    def embed(self, texts):
        headers = {**self.server.headers, "Content-Type": "application/json"}
        body = json.dumps({"texts": texts})
        self.connection.request("POST", predict_path(SERVICE), body, headers)
        reply = self.connection.getresponse()
        body = reply.read()
        if reply.status != 200:
            sys.exit(f"the gateway answered {reply.status}: {body.decode()}")
        return body

    def vectors(self, texts):
        return [text["vector"] for text in json.loads(self.embed(texts))["embedded_texts"]]

    def cpu(self):
        return cpu_of(self.server.pid)

    def stop(self):
        self.server.stop()


PEER_PROGRAM = """
import json, sys, time
from sentence_transformers import SentenceTransformer
options = {"provider": "CPUExecutionProvider", "file_name": "model.onnx", "export": False}
model = SentenceTransformer(sys.argv[1], backend="onnx", device="cpu", model_kwargs=options)
print("ready", flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    batch, began = asked["batch"], time.perf_counter()
    for start in range(0, len(asked["texts"]), batch):
        part = asked["texts"][start : start + batch]
        vectors = model.encode(part, batch_size=batch, show_progress_bar=False)
    took = time.perf_counter() - began
    print(json.dumps([took, vectors.tolist() if asked["tell"] else None]), flush=True)
"""


class Peer:
    """Their side: the same model, as sentence-transformers lays it out."""

    def __init__(self, python, package, home):
        model = home / "model"
        shutil.copytree(package, model, ignore=shutil.ignore_patterns("xnnpack", "stamp"))
        (model / "onnx").mkdir()
        shutil.copy(next((package / "xnnpack").glob("*.onnx")), model / "onnx" / "model.onnx")
        config = {"model_type": "bert", "hidden_size": 384, "num_hidden_layers": 6}
        config |= {"num_attention_heads": 12, "intermediate_size": 1536, "vocab_size": 30522}
        (model / "config.json").write_text(json.dumps(config))
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "true"}
        environment.pop("PYTHONPATH", None)
        self.process = subprocess.Popen(
            [str(python), "-c", PEER_PROGRAM, str(model)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for line in self.process.stdout:
            if line.strip() == "ready":
                return
        sys.exit("sentence-transformers did not start")

    def ask(self, texts, batch, tell=False):
        asked = {"texts": texts, "batch": batch, "tell": tell}
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def cpu(self):
        return cpu_of(self.process.pid)

    def stop(self):
        self.process.stdin.close()
        self.process.wait()


def cpu_of(process):
    """CPU seconds of a process and of those it started."""
    total, ticks = 0, os.sysconf("SC_CLK_TCK")
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, fields = stat.read_text().rsplit(")", 1)
        except OSError:
            continue
        fields = fields.split()
        if int(name.split()[0]) == process or int(fields[1]) == process:
            total += int(fields[11]) + int(fields[12])
    return total / ticks


def agree(ours, theirs, texts):
    """Both compute the same; the first calls, which load, are not timed."""
    some = texts[:32]
    _, expected = theirs.ask(some, 32, tell=True)
    for one, other in zip(ours.vectors(some), expected):
        cosine = sum(a * b for a, b in zip(one, other))
        if abs(1 - cosine) > 1e-5:
            sys.exit(f"the two do not agree: cosine {cosine}")


def compare(ours, theirs, texts, batch, rounds):
    """Texts a second of both, by turns."""
    rates = {"pkgtool": [], "sentence-transformers": []}
    per_cpu = {"pkgtool": [], "sentence-transformers": []}
    for _ in range(rounds):
        before, began = ours.cpu(), time.perf_counter()
        for start in range(0, len(texts), batch):
            ours.embed(texts[start : start + batch])
        rates["pkgtool"].append(len(texts) / (time.perf_counter() - began))
        per_cpu["pkgtool"].append(len(texts) / max(ours.cpu() - before, 1e-9))
        before = theirs.cpu()
        took, _ = theirs.ask(texts, batch)
        rates["sentence-transformers"].append(len(texts) / took)
        per_cpu["sentence-transformers"].append(len(texts) / max(theirs.cpu() - before, 1e-9))
    ratio = statistics.median(a / b for a, b in zip(*rates.values()))
    cpu_ratio = statistics.median(a / b for a, b in zip(*per_cpu.values()))
    print(f"batch {batch}")
    for name, values in rates.items():
        middle, by_cpu = statistics.median(values), statistics.median(per_cpu[name])
        print(f"  {name:<24} {middle:8.1f} texts/s  {by_cpu:8.1f} texts per CPU second")
    print(f"  ratio                    {ratio:8.2f}          {cpu_ratio:8.2f}")
    return {"texts_per_second": rates, "per_cpu_second": per_cpu, "ratio": ratio, "cpu_ratio": cpu_ratio}


if __name__ == "__main__":
    main()
