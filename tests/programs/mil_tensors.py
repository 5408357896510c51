"""Programs of `mil.py` that pick, place and rearrange elements.

What they give is eager PyTorch's. Where PyTorch has no such operation it is written out from Core ML's documents
with PyTorch's own functions; the comments say where.
"""

import math

import numpy as np
import torch
from coremltools.converters.mil.mil import Builder as mb
from mil import Mil, array, network, noise, whole
from torch.nn import functional as F


def numbered(data, start, updates, mode):
    """Core ML's rule: updates joined one after another into the places they name."""
    joined = {
        "add": torch.add,
        "sub": torch.sub,
        "mul": torch.mul,
        "div": lambda old, new: torch.div(old, new, rounding_mode=None if old.is_floating_point() else "trunc"),
        "max": torch.maximum,
        "min": torch.minimum,
        "update": lambda old, new: new,
    }
    data = data.clone().reshape(-1)
    for place, new in zip(start.tolist(), updates.reshape(-1), strict=True):
        old = data[place].clone()
        data[place] = joined[mode](old, new)
    return data


def places(shape):
    """The place of each element."""
    return torch.arange(math.prod(shape)).reshape(shape)


@network
def mil_scatter():
    # x: data; i: rows (repeated ones join twice); u: updates of rows.
    shape = (4, 3)

    def rows(x, i, u, mode):
        return numbered(x, places(shape)[i.long()].reshape(-1), u, mode).reshape(shape)

    def columns(x, i, u, mode):
        columns = i.long() % 3
        wanted = places(shape)[:, columns].reshape(-1)
        return numbered(x, wanted, u.T.repeat(2, 1)[:4], mode).reshape(shape)

    pairs = np.array([[0, 2], [3, 1], [0, 2]], dtype=np.int32)
    where = torch.from_numpy(pairs).long()

    def nd(x, i, u, mode):
        return numbered(x, places(shape)[where[:, 0], where[:, 1]], u[:, 0], mode).reshape(shape)

    def first(u):
        return mb.slice_by_index(x=u, begin=[0, 0], end=[3, 1], squeeze_mask=[False, True])

    operators = {}
    for mode in ("add", "sub", "mul", "div", "max", "min", "update"):
        operators[f"scatter {mode}"] = (
            lambda x, i, u, mode=mode: mb.scatter(data=x, indices=i, updates=u, axis=0, mode=mode),
            lambda x, i, u, mode=mode: rows(x, i, u, mode),
        )
        operators[f"scatter_nd {mode}"] = (
            lambda x, i, u, mode=mode: mb.scatter_nd(
                data=x, indices=pairs, updates=first(u), mode=mode
            ),
            lambda x, i, u, mode=mode: nd(x, i, u, mode),
        )
    operators["scatter_nd rows"] = (
        lambda x, i, u: mb.scatter_nd(
            data=x, indices=mb.expand_dims(x=i, axes=[1]), updates=u, mode="update"
        ),
        lambda x, i, u: rows(x, i, u, "update"),
    )
    operators["scatter columns"] = (
        lambda x, i, u: mb.scatter(
            data=x,
            indices=mb.mod(x=i, y=3),
            updates=mb.slice_by_index(
                x=mb.tile(x=mb.transpose(x=u, perm=[1, 0]), reps=[2, 1]), begin=[0, 0], end=[4, 3]
            ),
            axis=-1,
            mode="add",
        ),
        lambda x, i, u: columns(x, i, u, "add"),
    )
    along = np.array([[0, 1, 2], [3, 3, 0]], dtype=np.int32)
    operators["scatter_along_axis"] = (
        lambda x, i, u: mb.scatter_along_axis(
            data=x,
            indices=np.concatenate([along, along[:, ::-1]])[:3],
            updates=u,
            axis=0,
            mode="add",
        ),
        lambda x, i, u: x.scatter_add(
            0, torch.from_numpy(np.concatenate([along, along[:, ::-1]])[:3].copy()).long(), u
        ),
    )
    operators["scatter_along_axis update"] = (
        lambda x, i, u: mb.scatter_along_axis(
            data=x, indices=np.array([[2], [0], [1], [1]], np.int32),
            updates=np.array([[1.5], [2.5], [3.5], [4.5]], np.float32), axis=1, mode="update",
        ),
        lambda x, i, u: x.scatter(
            1, torch.tensor([[2], [0], [1], [1]]), torch.tensor([[1.5], [2.5], [3.5], [4.5]])
        ),
    )
    operators["scatter of integers"] = (
        lambda x, i, u: mb.scatter(
            data=np.array([7, 8, 9, 10], np.int32), indices=i, updates=i, axis=0, mode="mul"
        ),
        lambda x, i, u: numbered(torch.tensor([7, 8, 9, 10], dtype=torch.int32), i.long(), i, "mul"),
    )
    cases = [
        (noise(*shape), torch.tensor(i, dtype=torch.int32), noise(3, 3))
        for i in ([1, 3, 1], [0, 2, 3])
    ]
    return Mil(operators, cases)


@network
def mil_gather():
    # x: (2, 3, 4); i: indices below 3; p: places below 2.
    def by_batch(x, i):
        return torch.stack([x[at][i[at].long()] for at in range(2)])

    def by_batch_last(x, i):
        return torch.stack([x[at][:, i[at].long()] for at in range(2)])

    operators = {
        "gather_nd": (
            lambda x, i, p: mb.gather_nd(x=x, indices=mb.stack(values=[p, p], axis=-1)),
            lambda x, i, p: x[p.long(), p.long()],
        ),
        "gather_nd all": (
            lambda x, i, p: mb.gather_nd(x=x, indices=mb.stack(values=[p, p, p], axis=-1)),
            lambda x, i, p: x[p.long(), p.long(), p.long()],
        ),
        "gather_nd batches": (
            lambda x, i, p: mb.gather_nd(x=x, indices=mb.expand_dims(x=i, axes=[2]), batch_dims=1),
            lambda x, i, p: by_batch(x, i),
        ),
        "gather batches": (
            lambda x, i, p: mb.gather(x=x, indices=i, axis=1, batch_dims=1),
            lambda x, i, p: by_batch(x, i),
        ),
        "gather batches last": (
            lambda x, i, p: mb.gather(x=x, indices=i, axis=2, batch_dims=1),
            lambda x, i, p: by_batch_last(x, i),
        ),
        "gather from the end": (
            lambda x, i, p: mb.gather(x=x, indices=mb.sub(x=i, y=3), axis=1),
            lambda x, i, p: x[:, i.long() - 3],
        ),
        "slice_by_size": (
            lambda x, i, p: mb.slice_by_size(x=x, begin=[0, 1, -3], size=[2, -1, 2]),
            lambda x, i, p: x[:, 1:, 1:3],
        ),
        "slice_by_size later": (
            lambda x, i, p: mb.slice_by_size(x=x, begin=spread(p), size=[1, 2, 3]),
            lambda x, i, p: x[p[0] : p[0] + 1, p[1] : p[1] + 2, 0:3],
        ),
        "slice_by_index backwards": (
            lambda x, i, p: mb.slice_by_index(
                x=x, begin=[0, -1, 3], end=[0, 0, 0], stride=[1, -2, -1],
                begin_mask=[True, False, False], end_mask=[True, True, False],
            ),
            lambda x, i, p: x.flip(1)[:, ::2].flip(2)[:, :, 0:3],
        ),
        "slice_by_index single later": (
            lambda x, i, p: mb.reshape(
                x=mb.slice_by_index(
                    x=x, begin=spread(p), end=[0, 0, 0],
                    begin_mask=[False, False, True], end_mask=[False, False, True],
                    squeeze_mask=[True, True, False],
                ),
                shape=[4],
            ),
            lambda x, i, p: x[p[0], p[1]],
        ),
        # How large the part is only a run knows; what is given is its sum.
        "slice_by_index later": (
            lambda x, i, p: mb.reduce_sum(
                x=mb.slice_by_index(
                    x=x, begin=[0, 0, 0], end=mb.add(x=spread(p), y=1), begin_mask=[True] * 3
                )
            ),
            lambda x, i, p: x[: p[0] + 1, : p[1] + 1, :1].sum(),
        ),
        "slice_by_index later backwards": (
            lambda x, i, p: mb.reduce_sum(
                x=mb.mul(
                    x=mb.slice_by_index(
                        x=x, begin=mb.add(x=spread(p), y=1), end=[0, 0, 0], stride=[1, 1, -1],
                        begin_mask=[True, True, False], end_mask=[True, True, True],
                    ),
                    y=2.0,
                )
            ),
            lambda x, i, p: 2.0 * x[:, :, :2].sum(),
        ),
    }

    def spread(p):
        return mb.concat(values=[p, np.array([0], np.int32)], axis=0)

    cases = [
        (noise(2, 3, 4), whole(3, 2, 2), torch.tensor([0, 1], dtype=torch.int32)),
        (noise(2, 3, 4), whole(3, 2, 2), torch.tensor([1, 0], dtype=torch.int32)),
    ]
    return Mil(operators, cases)


@network
def mil_rearrange():
    def depth_to_space(x, b):
        # TensorFlow's: the blocks are the outer part of the channels.
        n, c, h, w = x.shape
        x = x.reshape(n, b, b, c // b**2, h, w).permute(0, 3, 4, 1, 5, 2)
        return x.reshape(n, c // b**2, h * b, w * b)

    def space_to_depth(x, b):
        n, c, h, w = x.shape
        x = x.reshape(n, c, h // b, b, w // b, b).permute(0, 3, 5, 1, 2, 4)
        return x.reshape(n, c * b**2, h // b, w // b)

    def space_to_batch(x, blocks, pads):
        # TensorFlow's.
        x = F.pad(x, (*pads[1], *pads[0]))
        (n, c, h, w), (a, b) = x.shape, blocks
        x = x.reshape(n, c, h // a, a, w // b, b).permute(3, 5, 0, 1, 2, 4)
        return x.reshape(n * a * b, c, h // a, w // b)

    def batch_to_space(x, blocks, crops):
        (n, c, h, w), (a, b) = x.shape, blocks
        x = x.reshape(a, b, n // (a * b), c, h, w).permute(2, 3, 4, 0, 5, 1)
        x = x.reshape(n // (a * b), c, h * a, w * b)
        return x[:, :, crops[0][0] : h * a - crops[0][1], crops[1][0] : w * b - crops[1][1]]

    def reversed_parts(x, lengths):
        return torch.stack([torch.cat([r[:n].flip(0), r[n:]]) for r, n in zip(x, lengths, strict=True)])

    b = array(4, 2, 5)
    c, d = array(2, 3, 1, 4), array(1, 4, 6, 2)
    operators = {
        "depth_to_space": (
            lambda x, n: mb.depth_to_space(x=x, block_size=2), lambda x, n: depth_to_space(x, 2)
        ),
        "space_to_depth": (
            lambda x, n: mb.space_to_depth(x=x, block_size=2), lambda x, n: space_to_depth(x, 2)
        ),
        "pixel_shuffle": (
            lambda x, n: mb.pixel_shuffle(x=x, upscale_factor=2), lambda x, n: F.pixel_shuffle(x, 2)
        ),
        "pixel_unshuffle": (
            lambda x, n: mb.pixel_unshuffle(x=x, downscale_factor=np.uint32(2)),
            lambda x, n: F.pixel_unshuffle(x, 2),
        ),
        "space_to_batch": (
            lambda x, n: mb.space_to_batch(x=x, block_shape=[2, 3], paddings=[[1, 1], [0, 0]]),
            lambda x, n: space_to_batch(x, (2, 3), ((1, 1), (0, 0))),
        ),
        "batch_to_space": (
            lambda x, n: mb.batch_to_space(x=x, block_shape=[2, 1], crops=[[1, 0], [0, 2]]),
            lambda x, n: batch_to_space(x, (2, 1), ((1, 0), (0, 2))),
        ),
        "sliding_windows": (
            lambda x, n: mb.sliding_windows(x=x, axis=-1, size=3, stride=2),
            lambda x, n: x.unfold(3, 3, 2),
        ),
        "sliding_windows inside": (
            lambda x, n: mb.sliding_windows(x=x, axis=1, size=3),
            lambda x, n: x.unfold(1, 3, 1).movedim(-1, 2),
        ),
        "flatten2d": (
            lambda x, n: mb.flatten2d(x=x, axis=2), lambda x, n: x.reshape(2 * 4, 4 * 6)
        ),
        "flatten2d from the end": (
            lambda x, n: mb.flatten2d(x=x, axis=-1), lambda x, n: x.reshape(2 * 4 * 4, 6)
        ),
        "reverse_sequence": (
            lambda x, n: mb.reverse_sequence(x=x, lengths=n, seq_axis=1, batch_axis=0),
            lambda x, n: reversed_parts(x, n.tolist()),
        ),
        "reverse_sequence later": (
            lambda x, n: mb.reverse_sequence(x=x, lengths=[6, 0, 3, 4], seq_axis=3, batch_axis=2),
            lambda x, n: reversed_parts(x.permute(2, 3, 0, 1), [6, 0, 3, 4]).permute(2, 3, 0, 1),
        ),
        "reshape_like": (
            lambda x, n: mb.reshape_like(
                x=x, ref_tensors=[mb.transpose(x=x, perm=[3, 0, 1, 2]), x],
                begins=[0, 1], ends=[2, 3], end_masks=[False, False],
            ),
            lambda x, n: x.reshape(6, 2, 4, 4),
        ),
        "reshape zeros": (
            lambda x, n: mb.reshape(x=x, shape=[1, -1, 0, 0]), lambda x, n: x.reshape(1, 8, 4, 6)
        ),
        "concat interleaved": (
            lambda x, n: mb.concat(values=[x, mb.mul(x=x, y=-1.0)], axis=1, interleave=True),
            lambda x, n: torch.stack([x, -x], 2).reshape(2, 8, 4, 6),
        ),
        "pad reflect": (
            lambda x, n: mb.pad(x=x, pad=[1, 2, 3, 0], mode="reflect"),
            lambda x, n: F.pad(x, (3, 0, 1, 2), mode="reflect"),
        ),
        "pad replicate": (
            lambda x, n: mb.pad(x=x, pad=[1, 0, 2, 1, 0, 3], mode="replicate"),
            lambda x, n: F.pad(x, (0, 3, 2, 1, 1, 0), mode="replicate"),
        ),
        "pad with a number": (
            lambda x, n: mb.pad(x=x, pad=[0, 1, 2, 0], mode="constant", constant_val=-1.5),
            lambda x, n: F.pad(x, (2, 0, 0, 1), value=-1.5),
        ),
        "einsum": (
            lambda x, n: mb.einsum(values=(mb.mul(x=first(x), y=c), d), equation="nchw,nwhu->nchu"),
            lambda x, n: torch.einsum(
                "nchw,nwhu->nchu",
                (x[:1, :3, :1, :4] * torch.from_numpy(c)).expand(2, 3, 6, 4),
                torch.from_numpy(d).expand(2, 4, 6, 2),
            ),
        ),
        "matmul of a row": (
            lambda x, n: mb.matmul(x=mb.reshape(x=corner(x), shape=[4]), y=b.reshape(2, 4, 5)),
            lambda x, n: torch.matmul(x[0, 0, 0, :4], torch.from_numpy(b).reshape(2, 4, 5)),
        ),
    }
    operators["einsum of three dimensions"] = (
        lambda x, n: mb.einsum(values=(sliced(x), b), equation="chw,whr->chr"),
        lambda x, n: torch.einsum("chw,whr->chr", x[0, :, :2, :4], torch.from_numpy(b)),
    )

    def sliced(x):
        return mb.squeeze(x=mb.slice_by_index(x=x, begin=[0] * 4, end=[1, 4, 2, 4]), axes=[0])

    def first(x):
        return mb.slice_by_index(x=x, begin=[0] * 4, end=[1, 3, 1, 4])

    def corner(x):
        return mb.slice_by_index(x=x, begin=[0] * 4, end=[1, 1, 1, 4])

    cases = [
        (noise(2, 4, 4, 6), torch.tensor([3, 1], dtype=torch.int32)),
        (noise(2, 4, 4, 6), torch.tensor([4, 0], dtype=torch.int32)),
    ]
    return Mil(operators, cases)
