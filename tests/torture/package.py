"""A package of one tiny model, `y = -x` on vectors of any length, written without any library."""

import json


def write(directory, name="negate"):
    """Writes the package `NAME/xnnpack` below a directory."""
    place = directory / name / "xnnpack"
    place.mkdir(parents=True, exist_ok=True)
    model = onnx("Neg")
    file = f"{name}_xnnpack_fp32.onnx"
    (place / file).write_bytes(model)
    tensor = {"shape": [-1], "dtype": "float32"}
    config = {
        "$schema": "https://pkgtool.dev/schemas/config.schema.json",
        "model": name,
        "family": name,
        "capabilities": ["classification"],
        "backend": "xnnpack",
        "license": "mit",
        "variants": [
            {
                "precision": "fp32",
                "file": file,
                "size_bytes": len(model),
                "methods": {"forward": {"inputs": [tensor], "outputs": [tensor]}},
            }
        ],
    }
    (place / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def onnx(operator):
    """A model of one node, from the open vector `x` to the open vector `y`."""
    node = part(1, b"x") + part(2, b"y") + part(4, operator.encode())
    graph = part(1, node) + part(2, b"graph") + part(11, value("x")) + part(12, value("y"))
    return number(1, 8) + part(7, graph) + part(8, number(2, 13))


def value(name):
    dimension = part(2, b"n")
    tensor = number(1, 1) + part(2, part(1, dimension))
    return part(1, name.encode()) + part(2, part(1, tensor))


def part(field, content):
    return varint(field << 3 | 2) + varint(len(content)) + content


def number(field, content):
    return varint(field << 3) + varint(content)


def varint(content):
    encoded = bytearray()
    while content > 0x7F:
        encoded.append(content & 0x7F | 0x80)
        content >>= 7
    return bytes([*encoded, content])
