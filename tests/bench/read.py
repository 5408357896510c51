#!/usr/bin/env python3
"""Times the reading of a page of text: `pkgtool serve` against RapidOCR, in one run.

    tests/setup && python3 tests/bench/read.py [--rounds 15] [--copies 1,3] [--json FILE] [--binary FILE]

Both run the same ONNX files by the same library (ONNX Runtime) on the same threads. pkgtool gets the encoded page
over HTTP and answers with JSON: its figure includes the gateway. RapidOCR decodes the same bytes in its own process.
It reads six lines at a time, as its settings have it, and does not look for lines upside down, as pkgtool does not.
The two take turns; a figure is the median of the rounds, and the ratio is that of the same rounds. A page is
tests/answers/page.png, in as many copies below each other as `--copies` says. The peer is installed below target/
first.
"""

import argparse
import json
import os
import platform
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

VENV = ROOT / "target" / "bench-read"
MODELS = ROOT / "target/test-environment/models/rapidocr_onnxruntime/models"
PAGE = ROOT / "tests" / "answers" / "page.png"
PEER = ["rapidocr-onnxruntime==1.4.4", "onnxruntime==1.31.1"]
SERVICE = "page_reader"
COMPONENTS = {"detector": "ch_PP-OCRv4_det_infer.onnx", "recognizer": "ch_PP-OCRv4_rec_infer.onnx"}

PEER_PROGRAM = """
import json, sys, time
from pathlib import Path
from rapidocr_onnxruntime import RapidOCR
threads = int(sys.argv[1])
engine = RapidOCR(intra_op_num_threads=threads, det_intra_op_num_threads=threads, rec_intra_op_num_threads=threads)
print("ready", flush=True)
for line in sys.stdin:
    page = Path(line.strip()).read_bytes()
    began = time.perf_counter()
    lines, _ = engine(page, use_cls=False)
    print(json.dumps([time.perf_counter() - began, len(lines)]), flush=True)
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--copies", default="1,3", help="with commas")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--binary", type=Path, default=ROOT / "target/release/pkgtool")
    options = parser.parse_args()
    if not MODELS.is_dir():
        sys.exit(f"{MODELS} is not there: run tests/setup")
    python = peer_python(VENV, PEER)
    library = next(VENV.glob("lib/python*/site-packages/onnxruntime/capi/libonnxruntime.so.*"))
    os.environ["ORT_DYLIB_PATH"] = str(library)
    machine = f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}"
    document = {"machine": machine, "rounds": options.rounds, "pages": []}
    print(f"{machine}\n\n| lines | pkgtool | RapidOCR | ratio |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="pkgtool-bench-") as home:
        home = Path(home)
        server = Server(options.binary.resolve(), home / "server", '[log]\nlevel = "warn"\n', [package(home)])
        server.start()
        server.set_rate(1_000_000)
        peer = start_peer(python)
        try:
            for copies in map(int, options.copies.split(",")):
                document["pages"].append(compare(server, peer, page(python, home, copies), options.rounds))
        finally:
            peer.stdin.close()
            peer.wait()
            server.stop()
    if options.json:
        options.json.write_text(json.dumps(document, indent=2) + "\n")


def start_peer(python):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(python), "-c", PEER_PROGRAM, str(os.cpu_count())]
    pipe = subprocess.PIPE
    peer = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)
    if not any(line.strip() == "ready" for line in iter(peer.stdout.readline, "")):
        sys.exit("RapidOCR did not start")
    return peer


def package(home):
    folder = home / "package" / "xnnpack"
    folder.mkdir(parents=True)
    files = {name: f"{SERVICE}_{name}_xnnpack_fp32.onnx" for name in COMPONENTS}
    for name, file in files.items():
        shutil.copy(MODELS / COMPONENTS[name], folder / file)
    config = {
        "$schema": "https://pkgtool.dev/schemas/config.schema.json",
        "model": SERVICE,
        "family": SERVICE,
        "capabilities": ["text-detection", "text-recognition"],
        "backend": "xnnpack",
        "license": "apache-2.0",
        "variants": [{"precision": "fp32", "components": files}],
    }
    (folder / "config.json").write_text(json.dumps(config))
    return home / "package"


def page(python, home, copies):
    path = home / f"page_{copies}.png"
    program = (
        "import sys; from PIL import Image; page = Image.open(sys.argv[1]); count = int(sys.argv[3])\n"
        "whole = Image.new('RGB', (page.width, page.height * count))\n"
        "[whole.paste(page, (0, page.height * row)) for row in range(count)]; whole.save(sys.argv[2])"
    )
    subprocess.run([str(python), "-c", program, str(PAGE), str(path), str(copies)], check=True)
    return path


def ours(server, connection, path):
    headers = {**server.headers, "Content-Type": "image/png"}
    began = time.perf_counter()
    connection.request("POST", predict_path(SERVICE), path.read_bytes(), headers)
    reply = connection.getresponse()
    body = reply.read()
    took = time.perf_counter() - began
    if reply.status != 200:
        sys.exit(f"the gateway answered {reply.status}: {body.decode()}")
    return took, len(json.loads(body)["lines"])


def theirs(peer, path):
    peer.stdin.write(f"{path}\n")
    peer.stdin.flush()
    return json.loads(peer.stdout.readline())


def compare(server, peer, path, rounds):
    connection = server.connect(timeout=300)
    times = {"pkgtool": [], "rapidocr": []}
    for turn in range(rounds + 1):
        (own, found), (other, expected) = ours(server, connection, path), theirs(peer, path)
        if found != expected:
            sys.exit(f"the two do not agree: {found} lines, {expected}")
        # The first one loads the models.
        if turn:
            times["pkgtool"].append(own)
            times["rapidocr"].append(other)
    ratio = statistics.median(own / other for own, other in zip(*times.values()))
    own, other = (statistics.median(values) * 1000 for values in times.values())
    print(f"| {found} | {own:.0f} ms | {other:.0f} ms | {ratio:.2f} |", flush=True)
    return {"lines": found, "seconds": times, "ratio": ratio}


if __name__ == "__main__":
    main()
