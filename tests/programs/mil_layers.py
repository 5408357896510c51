"""Programs of `mil.py` of layers: pictures, windows, normalizations, recurrences.

What they give is eager PyTorch's. Where PyTorch has no such operation it is written out from Core ML's documents
with PyTorch's own functions; the comments say where.
"""

import math

import numpy as np
import torch
from coremltools.converters.mil.mil import Builder as mb
from mil import Mil, array, network, noise
from torch import nn
from torch.nn import functional as F


@network
def mil_pictures():
    def sampled(x, size, places):
        # Core ML's documents say where each place of the result lies; between two places it is linear.
        for axis, to in ((-2, size[0]), (-1, size[1])):
            last = x.shape[axis] - 1
            at = places(x.shape[axis], to).clamp(0, last)
            before = at.floor().long()
            share = at - before
            left = x.index_select(axis, before)
            right = x.index_select(axis, (before + 1).clamp(max=last))
            share = share[:, None] if axis == -2 else share
            x = left + (right - left) * share
        return x

    def steps(to):
        return torch.arange(to, dtype=torch.float32)

    modes = {
        "STRICT_ALIGN_CORNERS": lambda i, o: steps(o) * ((i - 1) / max(o - 1, 1)),
        "ALIGN_CORNERS": lambda i, o: steps(o) * ((i - 1) / (o - 1)) if o > 1 else torch.full((1,), (i - 1) / 2),
        "DEFAULT": lambda i, o: steps(o) * (i / o),
        "OFFSET_CORNERS": lambda i, o: (steps(o) + 0.5) * (max(1, i - 1) / o),
        "UNALIGN_CORNERS": lambda i, o: (steps(o) + 0.5) * (i / o) - 0.5,
    }

    def bilinear(x, size, corners):
        return F.interpolate(x, size, mode="bilinear", align_corners=corners)

    operators = {
        "upsample_bilinear": (
            lambda x, s: mb.upsample_bilinear(x=x, scale_factor_height=2.0, scale_factor_width=3.0),
            lambda x, s: bilinear(x, (6, 12), True),
        ),
        "upsample_bilinear by a half": (
            lambda x, s: mb.upsample_bilinear(
                x=x, scale_factor_height=1.5, scale_factor_width=1.3, align_corners=False
            ),
            lambda x, s: bilinear(x, (4, 5), False),
        ),
        "upsample_bilinear from beginnings": (
            lambda x, s: mb.upsample_bilinear(
                x=x, scale_factor_height=2.0, scale_factor_width=2.0,
                align_corners=False, half_pixel_centers=False,
            ),
            lambda x, s: sampled(x, (6, 8), modes["DEFAULT"]),
        ),
        "upsample_nearest_neighbor of three dimensions": (
            lambda x, s: mb.upsample_nearest_neighbor(
                x=mb.squeeze(x=x, axes=[0]), scale_factor_height=2, scale_factor_width=3
            ),
            lambda x, s: F.interpolate(x, (6, 12), mode="nearest")[0],
        ),
        "resize_nearest_neighbor": (
            lambda x, s: mb.resize_nearest_neighbor(x=x, target_size_height=5, target_size_width=3),
            lambda x, s: F.interpolate(x, (5, 3), mode="nearest-exact"),
        ),
        "resize nearest": (
            lambda x, s: mb.resize(
                x=x, shape=[2, 7], resized_dims=np.uint32(2), interpolation_mode="NEAREST_NEIGHBOR"
            ),
            lambda x, s: F.interpolate(x, (2, 7), mode="nearest-exact"),
        ),
        "resize one dimension": (
            lambda x, s: mb.resize(
                x=x, shape=[0, 9], resized_dims=np.uint32(1), sampling_mode="UNALIGN_CORNERS"
            ),
            lambda x, s: bilinear(x, (3, 9), False),
        ),
        "resize with a size that stays": (
            lambda x, s: mb.resize(
                x=x, shape=[1, 0, 6], resized_dims=np.uint32(2), sampling_mode="STRICT_ALIGN_CORNERS"
            ),
            lambda x, s: bilinear(x, (3, 6), True),
        ),
        "resize a list": (
            lambda x, s: mb.resize(x=s, shape=[8], resized_dims=np.uint32(1), sampling_mode="UNALIGN_CORNERS"),
            lambda x, s: F.interpolate(s[None, None], 8, mode="linear")[0, 0],
        ),
    }
    kinds = (
        ("bilinear", "constant", "normalized_minus_one_to_one", True),
        ("nearest", "border", "normalized_minus_one_to_one", False),
        ("bilinear", "reflection", "normalized_zero_to_one", True),
        ("bilinear", "symmetric", "normalized_minus_one_to_one", False),
        ("bilinear", "border", "unnormalized", False),
    )
    # What the places of PyTorch, from -1 to 1, are in each of Core ML's modes: a factor and a shift.
    modes_of_places = {
        "normalized_minus_one_to_one": (np.float32(1), np.float32(0)),
        "normalized_zero_to_one": (np.float32(0.5), np.float32(0.5)),
        "unnormalized": (np.array([1.5, 1.0], np.float32), np.array([1.5, 1.0], np.float32)),
    }
    for kind, padding, mode, corners in kinds:
        grid = array(1, 3, 2, 2)
        scale, shift = modes_of_places[mode]
        operators[f"resample {kind} {padding} {mode}"] = (
            lambda x, s, places=grid * scale + shift, kind=kind, padding=padding, mode=mode, corners=corners: (
                mb.resample(
                    x=x, coordinates=places, sampling_mode=kind, padding_mode=padding,
                    padding_value=0.0, coordinates_mode=mode, align_corners=corners,
                )
            ),
            lambda x, s, grid=grid, kind=kind, padding=padding, mode=mode, corners=corners: F.grid_sample(
                x, torch.from_numpy(grid), kind,
                {"constant": "zeros", "border": "border"}.get(padding, "reflection"),
                corners or mode == "unnormalized",
            ),
        )
    matrix = array(1, 6)
    operators["affine"] = (
        lambda x, s: mb.affine(
            x=x, transform_matrix=matrix, output_height=4, output_width=5, sampling_mode="bilinear",
            padding_mode="constant", padding_value=0.0, coordinates_mode="normalized_minus_one_to_one",
            align_corners=True,
        ),
        lambda x, s: F.grid_sample(
            x, F.affine_grid(torch.from_numpy(matrix).reshape(1, 2, 3), (1, 2, 4, 5), align_corners=True),
            align_corners=True,
        ),
    )
    for mode, places in modes.items():
        for size in ((5, 7), (1, 2), (2, 1)):
            operators[f"resize_bilinear {mode} {size}"] = (
                lambda x, s, mode=mode, size=size: mb.resize_bilinear(
                    x=x, target_size_height=size[0], target_size_width=size[1], sampling_mode=mode
                ),
                lambda x, s, places=places, size=size: sampled(x, size, places),
            )
    return Mil(operators, [(noise(1, 2, 3, 4), noise(5)), (noise(1, 2, 3, 4), noise(5))])


@network
def mil_windows():
    # line: (2, 4, 9), picture: (1, 4, 6, 7), body: (1, 2, 5, 6, 4)
    weights = {
        1: array(6, 2, 3, scale=0.3), 2: array(6, 4, 3, 2, scale=0.3), 3: array(4, 2, 2, 3, 2, scale=0.3),
    }
    back = {
        1: array(4, 3, 3, scale=0.3), 2: array(4, 3, 3, 4, scale=0.3), 3: array(2, 3, 2, 3, 2, scale=0.3),
    }
    bias, six = array(3), array(6)

    def tensor(values):
        return torch.from_numpy(values)

    def mean_without(x, pads, kernel, stride):
        # The mean of what is no padding, where the sides differ.
        ones = torch.ones_like(x[:1, :1])
        share = F.avg_pool2d(F.pad(ones, pads), kernel, stride)
        return F.avg_pool2d(F.pad(x, pads), kernel, stride) / share

    operators = {
        "conv of a line": (
            lambda a, p, b: mb.conv(
                x=a, weight=weights[1], bias=six, strides=[2], pad_type="custom", pad=[2, 1], dilations=[2], groups=2
            ),
            lambda a, p, b: F.conv1d(F.pad(a, (2, 1)), tensor(weights[1]), tensor(six), 2, 0, 2, 2),
        ),
        "conv same_lower": (
            lambda a, p, b: mb.conv(x=p, weight=weights[2], strides=[2, 1], pad_type="same_lower"),
            lambda a, p, b: F.conv2d(F.pad(p, (1, 0, 1, 0)), tensor(weights[2]), None, (2, 1)),
        ),
        "conv of a body": (
            lambda a, p, b: mb.conv(x=b, weight=weights[3], strides=[2, 1, 1], pad_type="custom", pad=[1, 1, 0, 0, 1, 1]),
            lambda a, p, b: F.conv3d(b, tensor(weights[3]), None, (2, 1, 1), (1, 0, 1)),
        ),
        "conv_transpose of a line": (
            lambda a, p, b: mb.conv_transpose(x=a, weight=back[1], bias=bias, strides=[2], pad_type="custom", pad=[1, 1]),
            lambda a, p, b: F.conv_transpose1d(a, tensor(back[1]), tensor(bias), 2, 1),
        ),
        "conv_transpose uneven": (
            lambda a, p, b: mb.conv_transpose(x=p, weight=back[2], bias=bias, strides=[2, 2], pad_type="custom", pad=[1, 0, 0, 2]),
            lambda a, p, b: F.conv_transpose2d(p, tensor(back[2]), tensor(bias), 2)[:, :, 1:, : -2],
        ),
        # As large as the strides make it, what is left over cut off on both sides, less before.
        "conv_transpose same": (
            lambda a, p, b: mb.conv_transpose(x=p, weight=back[2], strides=[2, 1], pad_type="same"),
            lambda a, p, b: F.conv_transpose2d(p, tensor(back[2]), None, (2, 1))[:, :, :12, 1:8],
        ),
        "conv_transpose larger": (
            lambda a, p, b: mb.conv_transpose(
                x=p, weight=back[2], bias=bias, strides=[2, 3], pad_type="custom", pad=[1, 1, 1, 1], output_shape=[1, 3, 12, 21]
            ),
            lambda a, p, b: F.conv_transpose2d(p, tensor(back[2]), tensor(bias), (2, 3), 1, (1, 1)),
        ),
        "conv_transpose of a body": (
            lambda a, p, b: mb.conv_transpose(x=b, weight=back[3], strides=[2, 1, 1], dilations=[1, 1, 2]),
            lambda a, p, b: F.conv_transpose3d(b, tensor(back[3]), None, (2, 1, 1), dilation=(1, 1, 2)),
        ),
        "max_pool of a line": (
            lambda a, p, b: mb.max_pool(x=a, kernel_sizes=[3], strides=[2], pad_type="custom", pad=[1, 1], ceil_mode=True),
            lambda a, p, b: F.max_pool1d(a, 3, 2, 1, ceil_mode=True),
        ),
        "max_pool uneven": (
            lambda a, p, b: mb.max_pool(x=p, kernel_sizes=[3, 2], strides=[2, 2], pad_type="custom", pad=[0, 1, 1, 0]),
            lambda a, p, b: F.max_pool2d(F.pad(p, (1, 0, 0, 1), value=-math.inf), (3, 2), 2),
        ),
        "max_pool of a body": (
            lambda a, p, b: mb.max_pool(x=b, kernel_sizes=[2, 3, 2], strides=[2, 1, 2], pad_type="custom", pad=[1, 1, 1, 1, 0, 0]),
            lambda a, p, b: F.max_pool3d(b, (2, 3, 2), (2, 1, 2), (1, 1, 0)),
        ),
        "max_pool same": (
            lambda a, p, b: mb.max_pool(x=p, kernel_sizes=[3, 2], strides=[2, 3], pad_type="same"),
            lambda a, p, b: F.max_pool2d(F.pad(p, (0, 1, 0, 1), value=-math.inf), (3, 2), (2, 3)),
        ),
        "avg_pool of a line": (
            lambda a, p, b: mb.avg_pool(x=a, kernel_sizes=[4], strides=[3], pad_type="custom", pad=[2, 2], ceil_mode=True),
            lambda a, p, b: F.avg_pool1d(a, 4, 3, 2, ceil_mode=True),
        ),
        "avg_pool uneven": (
            lambda a, p, b: mb.avg_pool(x=p, kernel_sizes=[3, 3], strides=[2, 2], pad_type="custom", pad=[1, 0, 0, 2]),
            lambda a, p, b: F.avg_pool2d(F.pad(p, (0, 2, 1, 0)), 3, 2),
        ),
        "avg_pool uneven without padding": (
            lambda a, p, b: mb.avg_pool(
                x=p, kernel_sizes=[3, 3], strides=[2, 2], pad_type="custom", pad=[1, 0, 0, 2], exclude_padding_from_average=True
            ),
            lambda a, p, b: mean_without(p, (0, 2, 1, 0), 3, 2),
        ),
        "avg_pool of a body": (
            lambda a, p, b: mb.avg_pool(x=b, kernel_sizes=[2, 3, 2], strides=[1, 2, 2], pad_type="custom", pad=[1, 1, 1, 1, 1, 1]),
            lambda a, p, b: F.avg_pool3d(b, (2, 3, 2), (1, 2, 2), 1),
        ),
        "avg_pool of a body without padding": (
            lambda a, p, b: mb.avg_pool(
                x=b, kernel_sizes=[2, 3, 2], strides=[1, 2, 2], pad_type="custom", pad=[1, 1, 1, 1, 1, 1],
                exclude_padding_from_average=True,
            ),
            lambda a, p, b: F.avg_pool3d(b, (2, 3, 2), (1, 2, 2), 1, count_include_pad=False),
        ),
    }
    cases = [(noise(2, 4, 9), noise(1, 4, 6, 7), noise(1, 2, 5, 6, 4)) for _ in range(2)]
    return Mil(operators, cases)


@network
def mil_norms():
    gamma, beta, mean = array(4), array(4), array(4)
    variance = np.abs(array(4)) + 0.5
    wide = array(4, 6)

    def t(values):
        return torch.from_numpy(values)

    def inner(x):
        y = x.permute(0, 2, 1, 3)
        y = F.layer_norm(y, (4, 6), t(wide), t(wide) * 0.5, 1e-4)
        return y.permute(0, 2, 1, 3)

    def line(x):
        return x[:, :, 0]

    def cut(x):
        return mb.squeeze(x=mb.slice_by_index(x=x, begin=[0] * 4, end=[2, 4, 1, 6]), axes=[2])

    operators = {
        "l2_norm": (
            lambda x: mb.l2_norm(x=x, epsilon=1e-3),
            lambda x: x / (x.square().sum((1, 2, 3), keepdim=True) + 1e-3).sqrt(),
        ),
        "local_response_norm": (
            lambda x: mb.local_response_norm(x=x, size=3, alpha=0.5, beta=0.6, k=1.5),
            lambda x: F.local_response_norm(x, 3, 0.5, 0.6, 1.5),
        ),
        "local_response_norm of a line": (
            lambda x: mb.local_response_norm(x=cut(x), size=4),
            lambda x: F.local_response_norm(line(x), 4),
        ),
        "batch_norm": (
            lambda x: mb.batch_norm(x=x, mean=mean, variance=variance, gamma=gamma, beta=beta, epsilon=1e-3),
            lambda x: F.batch_norm(x, t(mean), t(variance), t(gamma), t(beta), eps=1e-3),
        ),
        "batch_norm of a line": (
            lambda x: mb.batch_norm(x=cut(x), mean=mean, variance=variance),
            lambda x: F.batch_norm(line(x), t(mean), t(variance)),
        ),
        "instance_norm": (
            lambda x: mb.instance_norm(x=x, gamma=gamma, beta=beta, epsilon=1e-3),
            lambda x: F.instance_norm(x, weight=t(gamma), bias=t(beta), eps=1e-3),
        ),
        "instance_norm of a line": (
            lambda x: mb.instance_norm(x=cut(x)), lambda x: F.instance_norm(line(x))
        ),
        "layer_norm inside": (
            lambda x: mb.layer_norm(x=x, axes=[1, 3], gamma=wide, beta=wide * 0.5, epsilon=1e-4),
            inner,
        ),
        "layer_norm of channels": (
            lambda x: mb.layer_norm(x=x, axes=[1], gamma=gamma, beta=beta),
            lambda x: F.layer_norm(x.movedim(1, -1), (4,), t(gamma), t(beta)).movedim(-1, 1),
        ),
    }
    return Mil(operators, [(noise(2, 4, 5, 6),), (noise(2, 4, 5, 6),)])


@network
def mil_recurrent():
    # x: (steps 5, batch 2, 3); h, c: (batch 2, 2 * 4)
    forward, both = nn.LSTM(3, 4), nn.LSTM(3, 4, bidirectional=True)
    plain, cell = nn.RNN(3, 4, nonlinearity="relu"), nn.GRU(3, 4)

    def ordered(values, order):
        parts = values.detach().chunk(len(order))
        return torch.cat([parts[at] for at in order]).numpy()

    def weights(module, order, suffix="", joined=True):
        part = {name: ordered(getattr(module, f"{name}_l0{suffix}"), order) for name in ("weight_ih", "weight_hh")}
        bias = [ordered(getattr(module, f"bias_{name}_l0{suffix}"), order) for name in ("ih", "hh")]
        return part, (bias[0] + bias[1] if joined else bias)

    # PyTorch's gates are input, forget, cell, output; reset, update, new.
    lstm, lstm_bias = weights(both, (0, 1, 3, 2))
    lstm_back, lstm_back_bias = weights(both, (0, 1, 3, 2), "_reverse")
    one, one_bias = weights(forward, (0, 1, 3, 2))
    gru, (gru_input, gru_state) = weights(cell, (0, 2, 1), joined=False)
    rnn, rnn_bias = weights(plain, (0,))
    peephole = array(12, scale=0.5)

    def half(value, at=0):
        return mb.slice_by_index(x=value, begin=[0, 4 * at], end=[2, 4 * at + 4])

    def halves(value):
        return torch.stack([value[:, :4], value[:, 4:]])

    def torch_lstm(module, x, h, c, every=True):
        y, (h, c) = module(x, (h, c))
        flat = [torch.cat(list(state), 1) for state in (h, c)]
        return (y if every else y[-1:], *flat)

    def last_of_both(x, h, c):
        y, (h, c) = both(x, (halves(h), halves(c)))
        h, c = torch.cat(list(h), 1), torch.cat(list(c), 1)
        return h[None], h, c

    # Peepholes, clips and other functions: the equations of Core ML's documents and of coremltools' own tests.
    def written_out(x, h, c, gate, candidate, output, clip, hole):
        w, u, b = (torch.from_numpy(v) for v in (one["weight_ih"], one["weight_hh"], one_bias))
        p = torch.from_numpy(hole).chunk(3)
        h, c, given = h[:, :4], c[:, :4], []
        for step in x:
            i, f, o, z = (step @ w.T + h @ u.T + b).chunk(4, 1)
            i, f, z = gate(i + p[0] * c), gate(f + p[1] * c), candidate(z)
            c = torch.clamp(f * c + i * z, -clip, clip)
            h = gate(o + p[2] * c) * output(c)
            given.append(h)
        return torch.stack(given), h, c

    # The reset gate comes before the product with the state: coremltools' own test of this operation.
    def reset_before(x, h, reverse):
        w, u = (torch.from_numpy(gru[name]) for name in ("weight_ih", "weight_hh"))
        b, h = torch.from_numpy(gru_input), h[:, :4]
        given = []
        for step in x.flip(0) if reverse else x:
            (ri, oi, zi), (rh, _, zh) = (step @ w.T + b).chunk(3, 1), (h @ u.T).chunk(3, 1)
            r, z = torch.sigmoid(ri + rh), torch.sigmoid(zi + zh)
            o = torch.tanh(oi + (r * h) @ u.chunk(3)[1].T)
            h = (1 - z) * o + z * h
            given.append(h)
        y = torch.stack(given)
        return (y.flip(0) if reverse else y), h

    def simple(x, h, reverse):
        y, h = plain(x.flip(0) if reverse else x, h[None, :, :4].contiguous())
        return (y.flip(0) if reverse else y), h[0]

    def after(x, h):
        y, h = cell(x, h[None, :, :4].contiguous())
        return y, h[0]

    operators = {
        "lstm": (
            lambda x, h, c: mb.lstm(
                x=x, initial_h=half(h), initial_c=half(c), bias=one_bias, output_sequence=True, **one
            ),
            lambda x, h, c: torch_lstm(forward, x, h[None, :, :4].contiguous(), c[None, :, :4].contiguous()),
        ),
        "lstm reverse": (
            lambda x, h, c: mb.lstm(
                x=x, initial_h=half(h, 1), initial_c=half(c, 1), bias=one_bias, direction="reverse", **one
            ),
            lambda x, h, c: torch_lstm(
                forward, x.flip(0), h[None, :, 4:].contiguous(), c[None, :, 4:].contiguous(), every=False
            ),
        ),
        "lstm both ways": (
            lambda x, h, c: mb.lstm(
                x=x, initial_h=h, initial_c=c, bias=lstm_bias, direction="bidirectional", output_sequence=True,
                weight_ih_back=lstm_back["weight_ih"], weight_hh_back=lstm_back["weight_hh"],
                bias_back=lstm_back_bias, **lstm,
            ),
            lambda x, h, c: torch_lstm(both, x, halves(h), halves(c)),
        ),
        "lstm both ways, the last": (
            lambda x, h, c: mb.lstm(
                x=x, initial_h=h, initial_c=c, bias=lstm_bias, direction="bidirectional",
                weight_ih_back=lstm_back["weight_ih"], weight_hh_back=lstm_back["weight_hh"],
                bias_back=lstm_back_bias, **lstm,
            ),
            last_of_both,
        ),
        "lstm with peepholes": (
            lambda x, h, c: mb.lstm(
                x=x, initial_h=half(h), initial_c=half(c), bias=one_bias, output_sequence=True,
                peephole=peephole, clip=np.float32(0.4), **one,
            ),
            lambda x, h, c: written_out(
                x, h, c, torch.sigmoid, torch.tanh, torch.tanh, 0.4, peephole
            ),
        ),
        "lstm of other functions": (
            lambda x, h, c: mb.lstm(
                x=x, initial_h=half(h), initial_c=half(c), bias=one_bias, output_sequence=True,
                recurrent_activation="hard_sigmoid", cell_activation="relu", activation="linear", **one,
            ),
            lambda x, h, c: written_out(
                x, h, c, lambda v: torch.clamp(0.2 * v + 0.5, 0, 1), torch.relu, lambda v: v, 1e9, peephole * 0
            ),
        ),
        "gru": (
            lambda x, h, c: mb.gru(x=x, initial_h=half(h), bias=gru_input, output_sequence=True, **gru),
            lambda x, h, c: reset_before(x, h, False),
        ),
        "gru reverse": (
            lambda x, h, c: mb.gru(
                x=x, initial_h=half(h), bias=gru_input, output_sequence=True, direction="reverse", **gru
            ),
            lambda x, h, c: reset_before(x, h, True),
        ),
        "gru reset after": (
            lambda x, h, c: mb.gru(
                x=x, initial_h=half(h), input_bias=gru_input, bias=gru_state, reset_after=True,
                output_sequence=True, **gru,
            ),
            lambda x, h, c: after(x, h),
        ),
        "rnn": (
            lambda x, h, c: mb.rnn(
                x=x, initial_h=half(h), bias=rnn_bias, output_sequence=True, activation="relu", **rnn
            ),
            lambda x, h, c: simple(x, h, False),
        ),
        "rnn reverse": (
            lambda x, h, c: mb.rnn(
                x=x, initial_h=half(h), bias=rnn_bias, output_sequence=True, activation="relu",
                direction="reverse", **rnn,
            ),
            lambda x, h, c: simple(x, h, True),
        ),
    }
    cases = [(noise(5, 2, 3), noise(2, 8), noise(2, 8)) for _ in range(2)]
    return Mil(operators, cases, target="iOS18")
