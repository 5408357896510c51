"""Writes resize.json: a small picture, resized by OpenCV and Pillow.

    pip install opencv-python-headless pillow numpy
    python3 crates/media/tests/golden/resize.py
"""

import json
from pathlib import Path

import cv2
import numpy
from PIL import Image

WIDTH, HEIGHT = 9, 7
SIZES = [(5, 4), (13, 10), (3, 3), (9, 14)]
OPENCV = {
    "nearest": cv2.INTER_NEAREST,
    "linear": cv2.INTER_LINEAR,
    "cubic": cv2.INTER_CUBIC,
    "area": cv2.INTER_AREA,
}
PILLOW = {
    "smooth": Image.Resampling.BILINEAR,
    "smooth_cubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


def main():
    # Far from black and white, since Pillow clips between its two passes.
    picture = numpy.random.default_rng(7).integers(96, 160, (HEIGHT, WIDTH, 3), dtype=numpy.uint8)
    cases = []
    for size in SIZES:
        for name, how in OPENCV.items():
            cases.append(case(name, size, cv2.resize(picture, size, interpolation=how)))
        for name, how in PILLOW.items():
            cases.append(case(name, size, numpy.asarray(Image.fromarray(picture).resize(size, how))))
    golden = {"width": WIDTH, "height": HEIGHT, "pixels": picture.ravel().tolist(), "cases": cases}
    (Path(__file__).parent / "resize.json").write_text(json.dumps(golden) + "\n")


def case(name, size, resized):
    return {"interpolation": name, "size": list(size), "pixels": resized.ravel().tolist()}


if __name__ == "__main__":
    main()
