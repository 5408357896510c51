#!/usr/bin/env python3
"""Makes mel.json: the spectrum of speech.wav, padded to 30 seconds, by faster-whisper.

    pip install numpy
    pip install --no-deps faster-whisper==1.2.1
    python crates/media/tests/golden/mel.py

The tests only read the file.
"""

import importlib.util
import json
import sys
import wave
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
SPEECH = HERE.parents[3] / "tests" / "answers" / "speech.wav"
FRAMES = [0, 1, 60, 61, 123, 200, 305, 366, 400, 586, 587, 2998, 2999]


def main():
    extractor = feature_extractor()
    with wave.open(str(SPEECH)) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), np.int16) / np.float32(32_768)
    samples = np.pad(samples, (0, 480_000 - len(samples)))
    golden = {"frames": FRAMES}
    for bands in (80, 128):
        mel = extractor(feature_size=bands)(samples, padding=0)
        assert mel.shape[1] >= 3000, mel.shape
        golden[str(bands)] = [[float(value) for value in row[FRAMES]] for row in mel[:, :3000]]
    text = json.dumps(golden, separators=(",", ":"))
    (HERE / "mel.json").write_text(text + "\n")


def feature_extractor():
    """The module alone: the package needs programs that are not used here."""
    spec = importlib.util.find_spec("faster_whisper")
    path = Path(spec.submodule_search_locations[0]) / "feature_extractor.py"
    spec = importlib.util.spec_from_file_location("feature_extractor", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["feature_extractor"] = module
    spec.loader.exec_module(module)
    return module.FeatureExtractor


if __name__ == "__main__":
    main()
