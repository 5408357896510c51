#!/usr/bin/env python3
"""Measures how one key can slow others: eight expensive requests at once, beside another account's predicts.

    python3 tests/bench/hostile.py --binary FILE [--at-once 8] [--json FILE]

For each kind of input it prints the attacker's answers, the total time, the p99 of `/healthz` and
of the other account's predicts meanwhile, the peak memory of the gateway alone and of the gateway with all
its processes, and the processor time of both. Needs Linux; nothing is installed.
"""

import argparse
import base64
import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "packages-examples"
sys.path.insert(0, str(ROOT / "tests" / "torture"))

from server import Server, family, predict_path, resident  # noqa: E402

CHAT = "/api/adapters/compat/chat/completions"
SETTINGS = '[log]\nlevel = "warn"\n[services.murmur_vad]\npublic = true\n'
QUIET = json.dumps({"inputs": [{"shape": [1, 16, 4], "data": [0.5] * 64}]})


def png(width, height, rows=None):
    """A PNG of one colour; with fewer rows than it says it cannot be decoded whole."""

    def chunk(kind, content):
        checked = kind + content
        return len(content).to_bytes(4, "big") + checked + zlib.crc32(checked).to_bytes(4, "big")

    head = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([8, 2, 0, 0, 0])
    packer, packed = zlib.compressobj(9), []
    row = bytes(1 + width * 3)
    for _ in range(height if rows is None else rows):
        packed.append(packer.compress(row))
    packed.append(packer.flush())
    body = chunk(b"IHDR", head) + chunk(b"IDAT", b"".join(packed)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def jpeg(width, height):
    """The first bytes of a JPEG of that size."""
    frame = bytes([8]) + height.to_bytes(2, "big") + width.to_bytes(2, "big") + bytes([3])
    frame += bytes([1, 0x22, 0, 2, 0x11, 1, 3, 0x11, 1])
    table = bytes([0]) + bytes([1] * 64)
    segments = b"\xff\xdb" + (2 + len(table)).to_bytes(2, "big") + table
    segments += b"\xff\xc0" + (2 + len(frame)).to_bytes(2, "big") + frame
    scan = bytes([3, 1, 0, 2, 0x11, 3, 0x11, 0, 63, 0])
    return b"\xff\xd8" + segments + b"\xff\xda" + (2 + len(scan)).to_bytes(2, "big") + scan + bytes(64) + b"\xff\xd9"


def picture(content):
    return json.dumps({"image_base64": base64.b64encode(content).decode()})


def chat(schema):
    return json.dumps(
        {
            "model": "local/jackdaw",
            "max_tokens": 2,
            "messages": [{"role": "user", "content": "Hello"}],
            "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
        }
    )


def nested(levels):
    schema = {"type": "null"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


def of_properties(count):
    names = [f"property{n}" for n in range(count)]
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": names}


def kinds():
    glimpse, vad, hush = (predict_path(name) for name in ("glimpse", "murmur_vad", "hush_sentence"))
    numbers = '{"inputs":[{"data":[' + "0," * 9_999_999 + "0]}]}"
    pattern = {"type": "string", "pattern": "^((a{0,200}){0,200}){0,200}$"}
    yield "nothing", None, None
    yield "PNG 16384 x 16384", glimpse, picture(png(16384, 16384))
    yield "PNG 5120 x 5120", glimpse, picture(png(5120, 5120))
    yield "PNG 5120 x 5120, cut off", glimpse, picture(png(5120, 5120, rows=5000))
    yield "JPEG 65000 x 65000", glimpse, picture(jpeg(65000, 65000))
    yield "JPEG 5120 x 5120", glimpse, picture(jpeg(5120, 5120))
    yield "10 million numbers", vad, numbers
    yield "tokenizer that multiplies", hush, json.dumps({"texts": ["a"]})
    yield "tokenizer, pattern", predict_path("kindred"), json.dumps({"texts": ["a" * 100_000]})
    yield "schema, 9000 properties", CHAT, chat(of_properties(9000))
    yield "schema, 1024 properties", CHAT, chat(of_properties(1024))
    yield "schema, 100 levels", CHAT, chat(nested(100))
    yield "schema, 60 levels", CHAT, chat(nested(60))
    yield "schema, pattern", CHAT, chat(pattern)


def hostile_packages(home):
    """Examples whose tokenizers are bombs."""
    for name in ("hush-sentence", "kindred"):
        shutil.copytree(EXAMPLES / name, home / name)
    replace = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1500}
    split = {"type": "Split", "behavior": "Isolated", "invert": False}
    split["pattern"] = {"Regex": "(?:(?=a)(?:a|aa)+)+(?<=b)c"}
    changes = {
        "hush-sentence": ("normalizer", {"type": "Sequence", "normalizers": [replace] * 4}),
        "kindred": ("pre_tokenizer", split),
    }
    for name, (key, value) in changes.items():
        for file in (home / name).rglob("tokenizer.json"):
            tokenizer = json.loads(file.read_text())
            tokenizer[key] = value
            file.write_text(json.dumps(tokenizer))
    return [home / name for name in changes]


class Watch:
    """Asks as another account, and looks at memory, until it is stopped."""

    def __init__(self, server, key):
        self.server, self.key = server, key
        self.times = {"healthz": [], "predict": []}
        self.faults, self.alone, self.all = Counter(), 0, 0
        self.over = threading.Event()
        asks = [("healthz", "GET", "/healthz", None), ("predict", "POST", predict_path("murmur_vad"), QUIET)]
        self.threads = [threading.Thread(target=self.ask, args=ask) for ask in asks]
        self.threads.append(threading.Thread(target=self.look))
        for thread in self.threads:
            thread.start()

    def ask(self, name, method, path, body):
        connection = self.server.connect()
        while not self.over.is_set():
            began = time.monotonic()
            try:
                connection.request(method, path, body, {"MLP-API-KEY": self.key})
                reply = connection.getresponse()
                reply.read()
                if reply.status != 200:
                    self.faults[reply.status] += 1
            except (OSError, http.client.HTTPException) as error:
                self.faults[type(error).__name__] += 1
                connection = self.server.connect()
            self.times[name].append(time.monotonic() - began)
            time.sleep(0.005)

    def look(self):
        while not self.over.is_set():
            try:
                self.alone = max(self.alone, resident(self.server.pid))
                self.all = max(self.all, self.server.memory())
            except FileNotFoundError:
                pass
            time.sleep(0.01)

    def stop(self):
        self.over.set()
        for thread in self.threads:
            thread.join()

    def p99(self, name):
        times = sorted(self.times[name])
        return times[min(len(times) - 1, len(times) * 99 // 100)] * 1000 if times else float("nan")


def processor_seconds(pids):
    ticks = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
        except FileNotFoundError:
            continue
        ticks += sum(int(field) for field in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def measured(server, key, path, body, at_once):
    before = processor_seconds(family(server.pid))
    watch = Watch(server, key)
    began = time.monotonic()
    time.sleep(0.3)
    answers = Counter()
    if path is None:
        time.sleep(2)
    else:
        headers = {"MLP-API-KEY": server.key, "Authorization": f"Bearer {server.key}"}

        def ask(_):
            connection = server.connect()
            try:
                connection.request("POST", path, body, headers)
                reply = connection.getresponse()
                text = reply.read().decode(errors="replace")
                return reply.status, text
            except (OSError, http.client.HTTPException) as error:
                return type(error).__name__, str(error)
            finally:
                connection.close()

        with ThreadPoolExecutor(at_once) as pool:
            told = list(pool.map(ask, range(at_once)))
        answers = Counter(status for status, _ in told)
        words = told[0][1]
    took = time.monotonic() - began
    watch.stop()
    spent = processor_seconds(family(server.pid)) - before
    return {
        "answers": {str(status): count for status, count in answers.items()},
        "first": words[:200] if answers else "",
        "seconds": took,
        "processor_seconds": spent,
        "healthz_p99_ms": watch.p99("healthz"),
        "predict_p99_ms": watch.p99("predict"),
        "gateway_mb": watch.alone / 1e6,
        "all_mb": watch.all / 1e6,
        "faults_of_others": dict(watch.faults),
        "alive": server.process.poll() is None,
    }


def command(server, *arguments):
    words = [server.binary, *arguments, "--data-dir", str(server.data)]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", type=Path, required=True)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--only", help="kinds with this in their name")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        home = Path(home)
        packages = [EXAMPLES / name for name in ("glimpse", "murmur-vad", "jackdaw")]
        packages += hostile_packages(home)
        results = {}
        print("| input | answers | s | CPU s | healthz p99 ms | predict p99 ms | gateway MB | all MB | others failed |")
        print("|---|---|--:|--:|--:|--:|--:|--:|---|")
        for place, (name, path, body) in enumerate(kinds()):
            if options.only and options.only not in name:
                continue
            # Memory left by one kind must not count for the next.
            server = Server(options.binary, home / f"server{place}", SETTINGS, packages)
            server.start()
            try:
                server.set_rate(100_000)
                command(server, "accounts", "create", "--name", "other", "--rps", "100000")
                key = command(
                    server, "keys", "create", "--account", "other", "--name", "k", "--permission", "predict,read"
                )
                server.send("POST", predict_path("murmur_vad"), QUIET)
                one = results[name] = measured(server, key, path, body, options.at_once)
            finally:
                server.stop()
            answers = ", ".join(f"{count} x {status}" for status, count in one["answers"].items())
            if not one["alive"]:
                answers += ", the server died"
            print(
                f"| {name} | {answers} | {one['seconds']:.1f} | {one['processor_seconds']:.1f} "
                f"| {one['healthz_p99_ms']:.1f} | {one['predict_p99_ms']:.1f} | {one['gateway_mb']:.0f} "
                f"| {one['all_mb']:.0f} | {one['faults_of_others'] or ''} |",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
