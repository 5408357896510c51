"""The smallest package that can be served: `y = Neg(x)` on a float32 vector of any length.

The ONNX file is protobuf written by hand, as in crates/testing/src/onnx.rs: nothing to install.
"""

import json

FLOAT32 = 1


def write_package(directory, name="negate"):
    """Writes the package NAME for xnnpack into a directory of packages."""
    home = directory / name / "xnnpack"
    home.mkdir(parents=True, exist_ok=True)
    file = f"{name}_xnnpack_fp32.onnx"
    model = negate()
    (home / file).write_bytes(model)
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
    (home / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    return home / file


def negate():
    """The bytes of the model: IR version 10, opset 18."""
    node = _part(1, _part(1, b"x") + _part(2, b"y") + _part(4, b"Neg"))
    graph = node + _part(2, b"negate") + _value(11, b"x") + _value(12, b"y")
    return _int(1, 10) + _part(7, graph) + _part(8, _int(2, 18))


def _value(field, name):
    """A float32 vector whose length has the name `n`."""
    shape = _part(1, _part(2, b"n"))
    tensor = _int(1, FLOAT32) + _part(2, shape)
    return _part(field, _part(1, name) + _part(2, _part(1, tensor)))


def _part(field, content):
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _int(field, value):
    return _varint(field << 3) + _varint(value)


def _varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
