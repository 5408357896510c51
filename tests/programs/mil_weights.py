"""Programs of `mil.py` of packed weights, quantised values and half precision.

What they give is eager PyTorch's. Where PyTorch has no such operation it is written out from Core ML's documents
with PyTorch's own functions; the comments say where.
"""

import numpy as np
import torch
from coremltools.converters.mil.mil import Builder as mb
from coremltools.converters.mil.mil import types
from mil import Mil, array, network, noise
from torch.nn import functional as F


def bits(codes, count):
    """Numbers of so many bits packed into bytes, the lowest bits first."""
    lanes = [(int(code) >> bit) & 1 for code in codes.reshape(-1) for bit in range(count)]
    return np.packbits(np.array(lanes, np.uint8), bitorder="little")


@network
def mil_packed():
    # iOS16's packed weights. What they stand for is written out from their definition.
    generator = np.random.default_rng(5)
    operators = {}
    for count in (1, 2, 4, 6, 8):
        table = generator.normal(size=1 << count).astype(np.float32)
        codes = generator.integers(0, 1 << count, (5, 7))
        operators[f"lut of {count} bits"] = (
            lambda x, table=table, codes=codes, count=count: mb.matmul(
                x=x,
                y=mb.constexpr_lut_to_dense(
                    indices=bits(codes, count), lut=table, shape=np.array([5, 7], np.uint32)
                ),
            ),
            lambda x, table=table, codes=codes: x @ torch.from_numpy(table[codes]),
        )
    for kind, low, high in ((np.uint8, 0, 256), (np.int8, -128, 128)):
        data = generator.integers(low, high, (5, 7)).astype(kind)
        zeros = generator.integers(low, high, 7).astype(kind)
        scales = generator.uniform(0.01, 0.1, 7).astype(np.float32)
        operators[f"affine {kind.__name__} by places"] = (
            lambda x, data=data, zeros=zeros, scales=scales: mb.matmul(
                x=x,
                y=mb.constexpr_affine_dequantize(quantized_data=data, zero_point=zeros, scale=scales, axis=1),
            ),
            lambda x, data=data, zeros=zeros, scales=scales: x
            @ torch.from_numpy((data.astype(np.float32) - zeros) * scales),
        )
        operators[f"affine {kind.__name__}"] = (
            lambda x, data=data, kind=kind: mb.matmul(
                x=x,
                y=mb.constexpr_affine_dequantize(
                    quantized_data=data, zero_point=kind(3), scale=np.float32(0.05), axis=0
                ),
            ),
            lambda x, data=data: x @ torch.from_numpy((data.astype(np.float32) - 3) * np.float32(0.05)),
        )
    there = generator.integers(0, 2, (5, 7))
    values = generator.normal(size=int(there.sum())).astype(np.float32)
    dense = np.zeros((5, 7), np.float32)
    dense[there == 1] = values
    operators["sparse"] = (
        lambda x: mb.matmul(
            x=x,
            y=mb.constexpr_sparse_to_dense(
                nonzero_data=values, mask=bits(there, 1), shape=np.array([5, 7], np.uint32)
            ),
        ),
        lambda x: x @ torch.from_numpy(dense),
    )
    half = generator.normal(size=(5, 7)).astype(np.float16)
    operators["cast"] = (
        lambda x: mb.matmul(x=x, y=mb.constexpr_cast(source_val=half, output_dtype="fp32")),
        lambda x: x @ torch.from_numpy(half.astype(np.float32)),
    )
    return Mil(operators, [(noise(3, 5),), (noise(3, 5),)], target="iOS16")


@network
def mil_packed_blocks():
    # iOS18's packed weights: tables, scales and masks of blocks; one may be packed into another.
    generator = np.random.default_rng(6)
    few = {count: getattr(types, f"np_uint{count}_dtype", None) for count in (1, 2, 3, 4, 6)}

    def narrow(codes, count):
        return codes.astype(np.uint8 if count == 8 else few[count])

    def blocks(table, codes):
        size = [a // b for a, b in zip(codes.shape, table.shape[:-2], strict=True)]
        rows, columns = np.indices(codes.shape)
        return table[rows // size[0], columns // size[1], codes]

    operators = {}
    for count in (1, 2, 3, 4, 6, 8):
        table = generator.normal(size=(2, 1, 1 << count, 1)).astype(np.float32)
        codes = generator.integers(0, 1 << count, (6, 8))
        operators[f"lut of {count} bits"] = (
            lambda x, table=table, codes=codes, count=count: mb.matmul(
                x=x, y=mb.constexpr_lut_to_dense(indices=narrow(codes, count), lut=table)
            ),
            lambda x, table=table, codes=codes: x @ torch.from_numpy(blocks(table, codes)[..., 0]),
        )
    vectors = generator.normal(size=(1, 2, 4, 3)).astype(np.float32)
    picks = generator.integers(0, 4, (2, 8))
    operators["lut of vectors"] = (
        lambda x: mb.matmul(
            x=x, y=mb.constexpr_lut_to_dense(indices=narrow(picks, 2), lut=vectors, vector_axis=0)
        ),
        lambda x: x
        @ torch.from_numpy(np.moveaxis(blocks(vectors, picks), -1, 1).reshape(6, 8).copy()),
    )
    scale = generator.uniform(0.01, 0.1, (3, 2)).astype(np.float32)
    offset = generator.integers(0, 16, (3, 2))
    small = generator.integers(0, 16, (6, 8))

    def spread(values):
        return np.repeat(np.repeat(values, 2, 0), 4, 1)

    operators["blocks of 4 bits"] = (
        lambda x: mb.matmul(
            x=x,
            y=mb.constexpr_blockwise_shift_scale(
                data=narrow(small, 4), scale=scale, offset=narrow(offset, 4)
            ),
        ),
        lambda x: x @ torch.from_numpy(((small - spread(offset)) * spread(scale)).astype(np.float32)),
    )
    signed = generator.integers(-128, 128, (1, 1, 4, 1)).astype(np.int8)
    inner = generator.integers(0, 4, (6, 8))
    operators["blocks of a lut"] = (
        lambda x: mb.matmul(
            x=x,
            y=mb.constexpr_blockwise_shift_scale(
                data=mb.constexpr_lut_to_dense(indices=narrow(inner, 2), lut=signed), scale=scale
            ),
        ),
        lambda x: x @ torch.from_numpy((signed[0, 0, inner, 0] * spread(scale)).astype(np.float32)),
    )
    mask = generator.integers(0, 2, (6, 8))
    there = mask == 1
    values = generator.normal(size=int(there.sum())).astype(np.float32)

    def dense(values):
        whole = np.zeros((6, 8), np.float32)
        whole[there] = values
        return torch.from_numpy(whole)

    operators["sparse"] = (
        lambda x: mb.matmul(
            x=x, y=mb.constexpr_sparse_to_dense(nonzero_data=values, mask=narrow(mask, 1))
        ),
        lambda x: x @ dense(values),
    )
    table = generator.normal(size=(2, 1, 4, 1)).astype(np.float32)
    some = generator.integers(0, 4, int(there.sum()))

    def sparse_lut(x):
        found, data = mb.constexpr_lut_to_sparse(
            indices_mask=narrow(mask, 1), indices_nonzero_data=narrow(some, 2), lut=table
        )
        return mb.matmul(x=x, y=mb.constexpr_sparse_to_dense(nonzero_data=data, mask=found))

    rows = np.nonzero(there)[0]
    operators["sparse lut"] = (sparse_lut, lambda x: x @ dense(table[rows // 3, 0, some, 0]))
    bytes_of = generator.integers(-128, 128, int(there.sum())).astype(np.int8)

    def sparse_blocks(x):
        found, data = mb.constexpr_sparse_blockwise_shift_scale(
            data_mask=narrow(mask, 1), nonzero_data=bytes_of, scale=scale
        )
        return mb.matmul(x=x, y=mb.constexpr_sparse_to_dense(nonzero_data=data, mask=found))

    operators["sparse blocks"] = (
        sparse_blocks,
        lambda x: x @ dense((bytes_of * spread(scale)[there]).astype(np.float32)),
    )
    return Mil(operators, [(noise(3, 6),), (noise(3, 6),)], target="iOS18")


@network
def mil_quantized():
    scales = np.array([0.05, 0.02, 0.1], np.float32)
    zeros = np.array([3, -7, 100], np.int8)

    def there(x, **rest):
        return mb.cast(x=mb.quantize(input=x, **rest), dtype="int32")

    def by_channel(x, least, most):
        return torch.fake_quantize_per_channel_affine(
            x, torch.from_numpy(scales), torch.from_numpy(zeros).int(), 1, least, most
        )

    operators = {
        "quantize": (
            lambda x: there(x, scale=np.float32(0.02), zero_point=np.uint8(120), output_dtype="uint8"),
            lambda x: torch.quantize_per_tensor(x, 0.02, 120, torch.quint8).int_repr().to(torch.int32),
        ),
        "quantize without a zero point": (
            lambda x: there(x, scale=np.float32(0.03), output_dtype="int8"),
            lambda x: torch.quantize_per_tensor(x, 0.03, 0, torch.qint8).int_repr().to(torch.int32),
        ),
        "quantize by channel": (
            lambda x: there(x, scale=scales, zero_point=zeros, axis=1, output_dtype="int8"),
            lambda x: torch.quantize_per_channel(
                x, torch.from_numpy(scales), torch.from_numpy(zeros), 1, torch.qint8
            ).int_repr().to(torch.int32),
        ),
        "dequantize": (
            lambda x: mb.dequantize(
                input=mb.quantize(input=x, scale=scales, zero_point=zeros, axis=1, output_dtype="int8"),
                scale=scales, zero_point=zeros, axis=1,
            ),
            lambda x: by_channel(x, -128, 127),
        ),
        "dequantize of one scale": (
            lambda x: mb.dequantize(
                input=mb.quantize(input=x, scale=np.float32(0.5), output_dtype="uint8"), scale=np.float32(0.25)
            ),
            lambda x: torch.fake_quantize_per_tensor_affine(x, 0.5, 0, 0, 255) * 0.5,
        ),
    }
    return Mil(operators, [(noise(2, 3, 4),), (3.0 * noise(2, 3, 4),)])


def halved(value):
    """Rounded as a float16 result is."""
    return value.to(torch.float16).to(torch.float32)


@network
def mil_half_sums():
    # Sums that lose most of what is small where every result is a float16.
    ramp = torch.linspace(-2, 2, 24).reshape(2, 3, 4)

    def written(x, y):
        x, y = mb.cast(x=x, dtype="fp16"), mb.cast(x=y, dtype="fp16")
        far = mb.add(x=x, y=np.float16(1024))
        product = mb.mul(x=far, y=y)
        return (
            mb.sub(x=far, y=np.float16(1024)),
            mb.sub(x=product, y=mb.mul(x=y, y=np.float16(1024))),
            mb.real_div(x=mb.add(x=mb.mul(x=x, y=np.float16(0.1)), y=np.float16(256)), y=np.float16(3)),
            mb.reduce_max(x=mb.add(x=mb.add(x=x, y=y), y=np.float16(2048)), axes=[1]),
        )

    def wanted(x, y, rounded):
        x, y, tenth = rounded(x), rounded(y), float(np.float16(0.1))
        far = rounded(x + 1024)
        product = rounded(far * y)
        return (
            rounded(far - 1024),
            rounded(product - rounded(y * 1024)),
            rounded(rounded(rounded(x * tenth) + 256) / 3),
            rounded(rounded(x + y) + 2048).amax(1),
        )

    return half(written, wanted, [(ramp, ramp.flip(0) * 0.7), (noise(2, 3, 4), noise(2, 3, 4))])


@network
def mil_half_layers():
    # Layers and a recurrence: what is summed up within one operation is not rounded, its result is.
    weight, bias = (array(6, 4).astype(np.float16), array(6).astype(np.float16))
    gate, state, rest = (array(*shape, scale=0.5).astype(np.float16) for shape in ((4, 6), (4, 4), (4,)))

    def written(x, y):
        x, y = mb.cast(x=x, dtype="fp16"), mb.cast(x=y, dtype="fp16")
        wide = mb.linear(x=x, weight=weight, bias=bias)
        wide = mb.relu(x=mb.mul(x=wide, y=np.float16(7)))
        many, last = mb.rnn(
            x=wide, initial_h=y, weight_ih=gate, weight_hh=state, bias=rest, activation="relu", output_sequence=True
        )
        return many, last, mb.softmax(x=mb.sub(x=many, y=np.float16(0.3)), axis=-1)

    def wanted(x, y, rounded):
        x, h = rounded(x), rounded(y)
        wide = rounded(F.linear(x, *(torch.from_numpy(part).float() for part in (weight, bias))))
        wide = F.relu(rounded(wide * 7))
        w, u, b = (torch.from_numpy(part).float() for part in (gate, state, rest))
        many = []
        for step in wide:
            h = F.relu(step @ w.T + h @ u.T + b)
            many.append(h)
        many, h = rounded(torch.stack(many)), rounded(h)
        return many, h, rounded(torch.softmax(rounded(many - float(np.float16(0.3))), -1))

    return half(written, wanted, [(noise(3, 2, 4), noise(2, 4)), (noise(3, 2, 4), noise(2, 4))])


def half(written, wanted, cases):
    """A float16 program, what it gives in float32, and with every result rounded."""
    network = Mil(
        {"all": (written, lambda x, y: wanted(x, y, lambda value: value))},
        cases,
        variants=("coreml_fp16",),
    )
    network.halves = lambda x, y: wanted(x, y, halved)
    return network
