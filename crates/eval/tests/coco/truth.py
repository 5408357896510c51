"""Makes annotations and results at random, and evaluates them with pycocotools: `coco.json` beside this file.

    pip install pycocotools==2.0.11 numpy
    python crates/eval/tests/coco/truth.py
"""

import contextlib
import io
import json
import random
from pathlib import Path

from pycocotools import mask as masks
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

HERE = Path(__file__).parent
CLASSES = ["cat", "dog", "bird"]
SIZES = [(320, 240), (200, 300), (128, 96)]


def polygon(random, box):
    x, y, width, height = box
    places = [(0.1, 0), (0.9, 0.05), (1, 0.6), (0.6, 1), (0.05, 0.8)]
    jitter = lambda: random.uniform(-0.05, 0.05)
    points = [(x + (a + jitter()) * width, y + (b + jitter()) * height) for a, b in places]
    return [round(value, 2) for point in points for value in point]


def box(random, size):
    width = random.choice([10, 25, 60, 110]) * random.uniform(0.7, 1.3)
    height = random.choice([10, 25, 60, 110]) * random.uniform(0.7, 1.3)
    width, height = min(width, size[0] - 4), min(height, size[1] - 4)
    x, y = random.uniform(0, size[0] - width), random.uniform(0, size[1] - height)
    return [round(value, 2) for value in (x, y, width, height)]


def moved(random, box):
    x, y, width, height = box
    shift = lambda length: random.gauss(0, 0.07) * length
    return [round(v, 2) for v in (x + shift(width), y + shift(height), width + shift(width), height + shift(height))]


def runs(polygons, size):
    encoded = masks.merge(masks.frPyObjects(polygons, size[1], size[0]))
    return encoded


def changes(encoded):
    """The places at which the object begins or ends."""
    flat = masks.decode(encoded).flatten(order="F")
    before, places = 0, []
    for place, value in enumerate(flat.tolist() + [0]):
        if value != before:
            places.append(place)
            before = value
    return places


def counts(encoded):
    flat = masks.decode(encoded).flatten(order="F").tolist()
    lengths, before, length = [], 0, 0
    for value in flat:
        if value != before:
            lengths.append(length)
            before, length = value, 0
        length += 1
    return lengths + [length]


def made():
    source = random.Random(7)
    pictures, objects, found = [], [], []
    for number in range(12):
        size = source.choice(SIZES)
        pictures.append({"id": number + 1, "file_name": f"{number}.png", "width": size[0], "height": size[1]})
        for _ in range(source.randint(0, 7)):
            place = box(source, size)
            category = source.randint(1, 3)
            parts = [polygon(source, place)]
            if source.random() < 0.2:
                parts.append(polygon(source, box(source, size)))
            encoded = runs(parts, size)
            truth = {
                "id": len(objects) + 1,
                "image_id": number + 1,
                "category_id": category,
                "bbox": place,
                "area": float(masks.area(encoded)),
                "iscrowd": 0,
                "segmentation": parts,
            }
            kind = source.random()
            if kind < 0.15:
                truth["iscrowd"] = 1
                truth["segmentation"] = {"counts": counts(encoded), "size": [size[1], size[0]]}
            elif kind < 0.3:
                text = {"counts": encoded["counts"].decode(), "size": [size[1], size[0]]}
                truth["segmentation"] = text
            objects.append(truth)
            for _ in range(source.choice([0, 1, 1, 1, 2])):
                near = moved(source, place)
                other = category if source.random() < 0.85 else source.randint(1, 3)
                found.append((number + 1, other, near, round(source.uniform(0.05, 1), 2)))
        for _ in range(source.randint(0, 3)):
            found.append((number + 1, source.randint(1, 3), box(source, size), round(source.uniform(0.01, 0.6), 2)))
    results = []
    for image, category, place, score in found:
        size = (pictures[image - 1]["width"], pictures[image - 1]["height"])
        encoded = runs([polygon(source, place)], size)
        results.append({"image_id": image, "category_id": category, "bbox": place, "score": score, "mask": encoded})
    categories = [{"id": place + 1, "name": name} for place, name in enumerate(CLASSES)]
    return {"images": pictures, "annotations": objects, "categories": categories}, results


def evaluated(dataset, results, kind):
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = json.loads(json.dumps(dataset))
        truth.createIndex()
        if kind == "bbox":
            given = [{key: value for key, value in it.items() if key != "mask"} for it in results]
        else:
            given = [
                {
                    "image_id": it["image_id"],
                    "category_id": it["category_id"],
                    "score": it["score"],
                    "segmentation": it["mask"],
                }
                for it in results
            ]
        evaluation = COCOeval(truth, truth.loadRes(given), kind)
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    # mAP, AP50, AP75, small, medium, large; the recall with 100 objects.
    return [float(evaluation.stats[place]) for place in (0, 1, 2, 3, 4, 5, 8)]


def main():
    dataset, results = made()
    truth = {
        "dataset": dataset,
        "found": [
            {
                "picture": f"{it['image_id'] - 1}.png",
                "class": CLASSES[it["category_id"] - 1],
                "score": it["score"],
                "corner_and_size": it["bbox"],
                "pixels": {"changes": changes(it["mask"])},
            }
            for it in results
        ],
        "boxes": evaluated(dataset, results, "bbox"),
        "masks": evaluated(dataset, results, "segm"),
    }
    (HERE / "coco.json").write_text(json.dumps(truth, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
