"""Pictures made by rule: shapes, landscapes and lines of text, with what they show.

Pictures are batches of [3, height, width] (text: [1, height, width]) from 0 to 1. Chance comes from
torch's generator.
"""

import math
import struct
import zlib

import numpy as np
import torch

SHAPES = (
    "circle",
    "square",
    "triangle",
    "star",
    "cross",
    "ring",
    "heart",
    "moon",
    "hexagon",
    "diamond",
)
COLOURS = {
    "red": (0.85, 0.15, 0.15), "green": (0.15, 0.65, 0.2), "blue": (0.15, 0.3, 0.85),
    "yellow": (0.95, 0.85, 0.2), "black": (0.08, 0.08, 0.08), "white": (0.96, 0.96, 0.96),
}  # fmt: skip
PAPER = (0.9, 0.88, 0.8)
LANDSCAPE = ("sky", "sea", "sand", "grass", "rock")
LETTERS = " abcdefghijklmnopqrstuvwxyz0123456789.-"
# Five columns of seven rows for every letter, the lowest bit on top.
FONT = (
    "0000000000 2054545478 7f48444438 3844444420 384444487f 3854545418 087e090102 0c5252523e 7f08040478"
    " 00447d4000 2040443d00 7f10284400 00417f4000 7c04180478 7c08040478 3844444438 7c14141408 081414187c"
    " 7c08040408 4854545420 043f444020 3c4040207c 1c2040201c 3c4030403c 4428102844 0c5050503c 4464544c44"
    " 3e5149453e 00427f4000 4261514946 2141454b31 1814127f10 2745454539 3c4a494930 0171090503 3649494936"
    " 064949291e 0060600000 0808080808"
).split()


def between(low, high, *shape):
    """Numbers spread evenly."""
    return low + (high - low) * torch.rand(*shape)


def distance(shape, x, y):
    """How far points lie outside a shape of radius 1; negative inside."""
    radius = torch.hypot(x, y)
    if shape == "circle":
        return radius - 1
    if shape == "square":
        return torch.maximum(x.abs(), y.abs()) - 0.85
    if shape == "ring":
        return (radius - 0.78).abs() - 0.22
    if shape == "cross":
        long, wide = torch.maximum(x.abs(), y.abs()) - 0.95, torch.minimum(x.abs(), y.abs()) - 0.3
        return torch.maximum(long, wide)
    if shape == "diamond":
        return (x.abs() / 0.65 + y.abs() - 1) * 0.55
    if shape == "moon":
        return torch.maximum(radius - 1, 0.85 - torch.hypot(x - 0.5, y))
    if shape == "heart":
        lobes = torch.hypot(x.abs() - 0.42, y + 0.32) - 0.53
        return torch.minimum(lobes, (x.abs() + (y - 0.05).abs()) * 0.7071 - 0.62)
    if shape == "star":
        angle = torch.remainder(torch.atan2(x, -y) + math.pi / 5, 2 * math.pi / 5) - math.pi / 5
        across, along = radius * angle.abs().sin(), radius * angle.cos()
        inner = (0.42 * math.sin(math.pi / 5), 0.42 * math.cos(math.pi / 5) - 1)
        length = math.hypot(*inner)
        return (across * -inner[1] + (along - 1) * inner[0]) / length
    sides = {"triangle": 3, "hexagon": 6}[shape]
    angle = torch.remainder(torch.atan2(x, -y), 2 * math.pi / sides) - math.pi / sides
    return radius * angle.cos() - (0.5 if sides == 3 else 0.87)


def grid(height, width):
    """Coordinates of the pixels' centres."""
    return torch.meshgrid(torch.arange(height) + 0.5, torch.arange(width) + 0.5, indexing="ij")


def paint(picture, shape, colour, x, y, radius, turn=0.0):
    """Draws a shape with soft edges into a picture, in place."""
    rows, columns = grid(*picture.shape[1:])
    across, down = (columns - x) / radius, (rows - y) / radius
    turned = (
        across * math.cos(turn) + down * math.sin(turn),
        down * math.cos(turn) - across * math.sin(turn),
    )
    share = (0.5 - distance(shape, *turned) * radius).clamp(0, 1)
    picture += share * (torch.as_tensor(colour)[:, None, None] - picture)


def background(height, width):
    """A ground of one colour that changes slowly, with a little noise."""
    rows, columns = grid(height, width)
    colour, slope = torch.rand(3, 1, 1), between(-0.25, 0.25, 2, 3, 1, 1)
    ground = colour + slope[0] * (rows / height - 0.5) + slope[1] * (columns / width - 0.5)
    return ground + torch.randn(3, height, width) * 0.02


def contrasting(ground):
    """A colour that differs from the ground's."""
    mean = ground.mean(dim=(1, 2))
    while True:
        colour = torch.rand(3)
        if (colour - mean).abs().sum() > 0.7:
            return colour


def one_shape(size, kind):
    """A picture of one shape."""
    picture = background(size, size)
    radius = float(between(0.26, 0.46, 1)) * size
    x, y = (between(-0.06, 0.06, 2) * size + size / 2).tolist()
    paint(picture, SHAPES[kind], contrasting(picture), x, y, radius, float(between(-0.2, 0.2, 1)))
    return picture.clamp(0, 1)


def several_shapes(height, width, kinds, least=0.1, most=0.24):
    """A picture of up to six shapes apart from each other; kinds and boxes of the shapes."""
    picture, found = background(height, width), []
    size = min(height, width)
    for _ in range(int(torch.randint(1, 7, (1,)))):
        radius = float(between(least, most, 1)) * size
        x, y = float(between(radius, width - radius, 1)), float(between(radius, height - radius, 1))
        if any(math.hypot(x - a, y - b) < (radius + r) * 1.1 for _, a, b, r in found):
            continue
        kind = int(torch.randint(0, kinds, (1,)))
        paint(
            picture, SHAPES[kind], contrasting(picture), x, y, radius, float(between(-0.2, 0.2, 1))
        )
        found.append((kind, x, y, radius))
    return picture.clamp(0, 1), found


def named_shapes(size, kinds, most=2):
    """A picture of shapes in named colours, from left to right; names of colours and shapes."""
    picture = background(size, size)
    mean, found = picture.mean(dim=(1, 2)), []
    count = int(torch.randint(1, most + 1, (1,)))
    apart = {
        name: colour
        for name, colour in COLOURS.items()
        if (torch.tensor(colour) - mean).abs().sum() > 0.7
    }
    for place in range(count):
        kind = SHAPES[int(torch.randint(0, kinds, (1,)))]
        colour = list(apart)[int(torch.randint(0, len(apart), (1,)))]
        room = size / count
        radius = (
            float(between(0.3, 0.45, 1)) * room if count > 1 else float(between(0.2, 0.4, 1)) * size
        )
        x = room * place + float(between(radius, max(radius, room - radius) + 1e-3, 1))
        y = float(between(radius, size - radius, 1))
        paint(picture, kind, COLOURS[colour], x, y, radius, float(between(-0.2, 0.2, 1)))
        found.append((colour, kind))
    return picture.clamp(0, 1), found


def extent(kind, x, y, radius):
    """The box around a shape."""
    reach = 0.85 if SHAPES[kind] == "square" else 1.0
    top, bottom = (1.0, 0.5) if SHAPES[kind] == "triangle" else (reach, reach)
    side = 0.87 if SHAPES[kind] == "triangle" else reach
    return (x - side * radius, y - top * radius, x + side * radius, y + bottom * radius)


def landscape(size):
    """A picture of sky, sea, sand, grass and rock, and the class of every pixel."""
    rows, columns = grid(size, size)
    rows, columns = rows / size, columns / size

    def line(height, roughness):
        waves = sum(
            float(between(-1, 1, 1)) / n * torch.sin(columns * 6.3 * n + float(between(0, 6.3, 1)))
            for n in (1, 2, 3)
        )
        return height + roughness * waves

    classes = torch.zeros(size, size, dtype=torch.long)
    horizon = float(between(0.3, 0.5, 1))
    if torch.rand(1) < 0.7:
        classes[rows > line(horizon - float(between(0.02, 0.2, 1)), 0.07)] = 4
    classes[rows > horizon] = 1
    shore = float(between(horizon, 0.85, 1))
    classes[rows > line(shore, 0.04)] = 2
    classes[rows > line(float(between(shore, 1.1, 1)), 0.04)] = 3
    grain = torch.randn(size, size)
    shade = between(-0.06, 0.06, 5, 3)
    base = torch.tensor(
        [
            (0.6, 0.78, 0.95),
            (0.1, 0.35, 0.6),
            (0.88, 0.78, 0.55),
            (0.3, 0.6, 0.2),
            (0.45, 0.42, 0.4),
        ]
    )
    rough = torch.tensor([0.01, 0.03, 0.04, 0.08, 0.08]) * float(between(0, 1.2, 1))
    colour = (base + shade)[classes].permute(2, 0, 1)
    glow = (0.15 * (rows - horizon)) * (classes == 0)
    return (colour + glow + grain * rough[classes]).clamp(0, 1), classes


def text_line(text, scale=2):
    """A line of text, white on black: [7 x scale, 6 x scale x letters]"""
    columns = []
    for letter in text:
        bits = bytes.fromhex(FONT[LETTERS.index(letter)])
        columns += [[byte >> row & 1 for row in range(7)] for byte in bits] + [[0] * 7]
    line = torch.tensor(columns, dtype=torch.float32).T
    return line.repeat_interleave(scale, 0).repeat_interleave(scale, 1)


def labelled(shape, colour):
    """A picture of one shape, 96 x 96."""
    torch.manual_seed(31)
    picture = torch.tensor([0.35, 0.4, 0.6])[:, None, None] * torch.ones(3, 96, 96)
    paint(picture, shape, COLOURS[colour], 50, 46, 36, 0.1)
    return picture


def example_shapes():
    """A picture of four shapes, 240 x 240."""
    rows, columns = grid(240, 240)
    picture = torch.stack((0.8 + rows / 1200, 0.82 + columns / 1600, 0.85 + rows / 2000)).clamp(
        0, 1
    )
    for shape, colour, x, y, radius in (
        ("circle", "red", 62, 70, 40),
        ("star", "blue", 172, 62, 46),
        ("square", "green", 70, 178, 38),
        ("triangle", "black", 176, 182, 46),
    ):
        paint(picture, shape, COLOURS[colour], x, y, radius, 0.08)
    return picture


def example_landscape():
    """A picture of a coast, 128 x 128."""
    torch.manual_seed(40)
    return landscape(128)[0]


def png(picture):
    """A picture of one or three channels as PNG."""
    pixels = (np.asarray(picture).transpose(1, 2, 0) * 255).round().astype(np.uint8)
    height, width, channels = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 0, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n"
    for kind, body in ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b"")):
        data += struct.pack(">I", len(body)) + kind + body
        data += struct.pack(">I", zlib.crc32(kind + body))
    return data


def write_png(path, picture):
    """Writes a picture of one or three channels as PNG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(png(picture))
