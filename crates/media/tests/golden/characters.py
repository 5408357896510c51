#!/usr/bin/env python3
"""Writes characters.json: maps of characters and links, made of turned rectangles, and the boxes that OpenCV finds.

A blob is a map (0 for characters, 1 for links), a centre, half a width, half a height, an angle in degrees, and a
score. A box is the centre, the longer and the shorter side of the smallest rectangle around an area, after the area
has grown as detectors of the CRAFT family do it.

Needs numpy and opencv-python-headless.
"""

import json
import math
from pathlib import Path

import cv2
import numpy as np

CASES = {
    "level": [[0, 30, 12, 18, 4, 0, 0.9], [0, 30, 40, 9, 6, 0, 0.75]],
    "turned": [[0, 40, 30, 25, 5, 20, 0.95], [0, 30, 70, 12, 4, -35, 0.8]],
    "linked": [[0, 20, 20, 4, 5, 0, 0.9], [1, 27, 20, 4, 3, 0, 0.6], [0, 34, 20, 4, 5, 0, 0.9]],
    "weak and small": [[0, 20, 20, 6, 4, 0, 0.6], [0, 60, 20, 1, 1, 0, 0.9], [0, 40, 60, 10, 6, 0, 0.9]],
    "at the edge": [[0, 0, 0, 12, 5, 0, 0.9], [0, 90, 88, 15, 6, 10, 0.9]],
    "page": [
        [0, 40, 30, 20, 6, 0, 0.9],
        [0, 90, 31, 18, 6, 0, 0.85],
        [0, 45, 70, 25, 6, 0, 0.9],
        [0, 250, 70, 25, 6, 0, 0.9],
    ],
}


def maps(blobs, width, height):
    both = np.zeros((2, height, width), np.float32)
    ys, xs = np.mgrid[:height, :width].astype(np.float64)
    for channel, x, y, across, down, angle, score in blobs:
        sine, cosine = math.sin(math.radians(angle)), math.cos(math.radians(angle))
        u, v = (xs - x) * cosine + (ys - y) * sine, (ys - y) * cosine - (xs - x) * sine
        inside = (abs(u) <= across) & (abs(v) <= down)
        both[channel][inside] = np.maximum(both[channel][inside], np.float32(score))
    return both


def boxes(both):
    text, link = both
    mask = ((text > 0.4) | (link > 0.4)).astype(np.uint8)
    count, labels, stats, _ = cv2.connectedComponentsWithStats(mask, connectivity=4)
    found = []
    for label in range(1, count):
        x, y, w, h, area = stats[label]
        if area < 10 or text[labels == label].max() < 0.7:
            continue
        radius = int(math.sqrt(area / max(w, h)) * 2)
        part = (labels == label).astype(np.uint8)
        part = cv2.dilate(part, np.ones((radius + 1, radius + 1), np.uint8))
        contours, _ = cv2.findContours(part, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
        (cx, cy), sides, _ = cv2.minAreaRect(contours[0])
        found.append([round(float(it), 4) for it in (cx, cy, max(sides), min(sides))])
    return found


def main():
    cases = []
    for name, blobs in CASES.items():
        width, height = (300, 100) if name == "page" else (100, 96)
        found = boxes(maps(blobs, width, height))
        cases.append({"name": name, "width": width, "height": height, "blobs": blobs, "boxes": found})
    path = Path(__file__).with_suffix(".json")
    path.write_text(json.dumps({"cases": cases}, indent=1) + "\n")


if __name__ == "__main__":
    main()
