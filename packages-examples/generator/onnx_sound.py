"""The networks of sound as ONNX files: voice activity, speech to text, text to speech."""

import numpy as np

from .onnx_files import Graph, conv
from .speech import BAND_LOUDNESS, BAND_WIDTHS, BLOCKS

# The end of an axis of any size.
LAST = np.iinfo(np.int64).max


def voice_activity(network):
    """Frames of samples, of any number, to probabilities of silence and of speech."""
    graph = Graph("voice_activity")
    frames = graph.input("frames", ["frames", network.cosines.shape[0]])
    cosine = graph.op("MatMul", frames, graph.weight(network.cosines))
    sine = graph.op("MatMul", frames, graph.weight(network.sines))
    power = graph.op("Add", graph.op("Mul", cosine, cosine), graph.op("Mul", sine, sine))
    x = graph.op("Log", graph.op("Add", power, number(graph, 1e-5)))
    x = graph.op("Transpose", graph.op("Mul", x, number(graph, 0.2)), perm=[1, 0])
    x = graph.op("Unsqueeze", x, axes(graph, 0))
    x = graph.op("Relu", conv(graph, x, network.first))
    x = graph.op("Relu", conv(graph, x, network.second))
    x = graph.op("Softmax", conv(graph, x, network.out), axis=1)
    graph.output(graph.op("Transpose", x, perm=[0, 2, 1]), "classes", [1, "frames", 2])
    return graph


def audio_encoder(network, frames):
    """Log-mel frames to the words in them, with their ends."""
    graph = Graph("audio_encoder")
    mels = network.entry.in_channels
    x = graph.op("Relu", conv(graph, graph.input("mel", [1, mels, frames]), network.entry))
    for layer in network.layers:
        x = graph.op("Add", x, graph.op("Relu", conv(graph, x, layer)))
    scores = graph.op("Transpose", conv(graph, x, network.out), perm=[0, 2, 1])
    scores = graph.op("Squeeze", scores, axes(graph, 0))
    top = graph.op("ReduceMax", scores, axes=[1], keepdims=1)
    best = graph.op("Cast", graph.op("GreaterOrEqual", scores, top), to=1)
    best = cut(graph, best, 1, 1, LAST)
    none = graph.weight(np.zeros((1, network.out.out_channels - 1), np.float32))
    before = graph.op("Concat", none, cut(graph, best, 0, 0, -1), axis=0)
    starts = graph.op("Relu", graph.op("Sub", best, before))
    count = graph.op("ReduceSum", starts, axes(graph, 1), keepdims=0)
    count = graph.op("CumSum", count, graph.scalar(np.int64(0)))
    row = nearest(graph, count, graph.weight(network.rows))
    words = graph.op("MatMul", row, starts)
    spoken = graph.op("ReduceSum", best, axes(graph, 1), keepdims=0)
    ticks = graph.op("Mul", spoken, graph.weight(np.arange(frames // 2, dtype=np.float32)))
    ends = graph.op("ReduceMax", graph.op("Mul", row, ticks), axes=[1], keepdims=1)
    states = graph.op("Concat", words, ends, axis=1)
    most, width = network.rows.shape[0], network.out.out_channels
    graph.output(graph.op("Unsqueeze", states, axes(graph, 0)), "states", [1, most, width])
    return graph


def text_decoder(network, states):
    """Token ids and the encoder's words to logits."""
    graph = Graph("text_decoder")
    most, width = states
    ids = graph.input("tokens", [1, "tokens"], "int64")
    memory = graph.op("Squeeze", graph.input("states", [1, most, width]), axes(graph, 0))
    kinds = graph.op("Gather", graph.weight(network.kinds), ids)
    kinds = graph.op("Squeeze", kinds, axes(graph, 0))
    is_word, is_time = cut(graph, kinds, 1, 0, 1), cut(graph, kinds, 1, 1, 2)
    said = graph.op("CumSum", is_word, graph.scalar(np.int64(0)))
    rows = graph.weight(np.arange(most, dtype=np.float32))
    following = graph.op("MatMul", nearest(graph, said, rows), memory)
    before = graph.op("Sub", said, number(graph, 1))
    last = graph.op("MatMul", nearest(graph, before, rows), memory)
    words = cut(graph, following, 1, 0, width - 1)
    has_more = graph.op("ReduceSum", words, axes(graph, 1), keepdims=1)
    one = number(graph, 1)
    has_none = graph.op("Sub", one, has_more)
    is_start = graph.op("Sub", graph.op("Sub", one, is_time), is_word)
    kinds_of_rest = (
        is_start,
        graph.op("Mul", is_time, has_none),
        graph.op("Mul", is_start, has_none),
    )
    rest = graph.op("Concat", *kinds_of_rest, axis=1)
    rest = graph.op("MatMul", rest, graph.weight(network.rest))
    end = cut(graph, last, 1, width - 1, width)
    away = graph.op("Abs", graph.op("Sub", graph.weight(network.time), end))
    near = graph.op("Sub", number(graph, 40), graph.op("Mul", away, number(graph, 4)))
    closing = graph.op("Mul", graph.op("Mul", is_word, has_none), graph.op("Relu", near))
    spoken = graph.op("Mul", words, number(graph, 40))
    spoken = graph.op("Mul", graph.op("Sub", one, is_start), spoken)
    spoken = graph.op("Pad", spoken, axes(graph, 0, 0, 0, network.others))
    logits = graph.op("Add", graph.op("Add", rest, closing), spoken)
    logits = graph.op("Unsqueeze", logits, axes(graph, 0))
    graph.output(logits, "logits", [1, "tokens", network.rest.shape[1]])
    return graph


def speech_synthesizer(network):
    """Ids of phonemes, of any number, and Piper's scales to samples."""
    graph = Graph("speech_synthesizer")
    ids = graph.input("input", [1, "phonemes"], "int64")
    graph.input("input_lengths", [1], "int64")
    scales = graph.input("scales", [3])
    flat = graph.op("Reshape", ids, axes(graph, -1))
    frames = graph.op("Gather", graph.weight(network.frames, "frames"), flat)
    tempo = graph.op("Max", cut(graph, scales, 0, 1, 2), number(graph, 0.1))
    lengths = graph.op("Mul", graph.op("Reshape", frames, axes(graph, -1)), tempo)
    ends = graph.op("CumSum", graph.op("Round", lengths), graph.scalar(np.int64(0)))
    total = graph.op("ReduceMax", ends, axes=[0], keepdims=0)
    steps = graph.op(
        "Range", number(graph, 0), graph.op("Add", total, number(graph, 1)), number(graph, 1)
    )
    column = graph.op("Unsqueeze", steps, axes(graph, 1))
    part = graph.op("Cast", graph.op("GreaterOrEqual", column, ends), to=7)
    part = graph.op("ReduceSum", part, axes(graph, 1), keepdims=0)
    most = graph.op("Sub", graph.op("Size", ends), graph.scalar(np.int64(1)))
    part = graph.op("Min", part, most)
    shapes = graph.op("Gather", graph.weight(network.shapes, "shapes"), flat)
    shapes = graph.op("Reshape", shapes, graph.raw(np.array([-1, 7], np.int64)))
    shapes = graph.op("Transpose", graph.op("Gather", shapes, part), perm=[1, 0])
    shapes = graph.op("Unsqueeze", shapes, axes(graph, 1))
    shapes = graph.op("Conv", shapes, graph.weight(network.glide), kernel_shape=[7], pads=[3, 3])
    shapes = graph.op("Transpose", graph.op("Squeeze", shapes, axes(graph, 1)), perm=[1, 0])
    voice, noise = spectra(graph, network, shapes)
    voiced = graph.op("MatMul", voice, graph.weight(network.harmonics, "harmonics"))
    block = graph.op("Cast", cut(graph, steps, 0, 0, -1), to=7)
    block = graph.op("Mod", block, graph.scalar(np.int64(BLOCKS)))
    blocks = graph.op("Gather", graph.weight(network.noise, "noise"), block)
    noise = graph.op("Unsqueeze", noise, axes(graph, 1))
    sides = []
    for low, high in ((0, -1), (1, LAST)):
        hissed = graph.op("MatMul", cut(graph, noise, 0, low, high), blocks)
        hissed = graph.op("Squeeze", hissed, axes(graph, 1))
        sides.append(graph.op("Add", cut(graph, voiced, 0, low, high), hissed))
    rising = graph.op("Mul", graph.op("Sub", sides[1], sides[0]), graph.weight(network.ramp))
    samples = graph.op("Add", sides[0], rising)
    samples = graph.op("Reshape", samples, graph.raw(np.array([1, 1, 1, -1], np.int64)))
    graph.output(samples, "output", [1, 1, 1, "samples"])
    return graph


def spectra(graph, network, shapes):
    """Loudness of every harmonic and every band."""
    voice = None
    for place, (width, loudness) in enumerate(zip(BAND_WIDTHS, BAND_LOUDNESS, strict=True)):
        formant = cut(graph, shapes, 1, 1 + place, 2 + place)
        away = graph.op("Sub", graph.weight(network.pitches), formant)
        away = graph.op("Div", away, number(graph, width / 1000))
        peak = graph.op("Add", graph.op("Mul", away, away), number(graph, 1))
        peak = graph.op("Div", number(graph, loudness), peak)
        voice = peak if voice is None else graph.op("Add", voice, peak)
    loud = graph.op("Mul", cut(graph, shapes, 1, 0, 1), number(graph, 0.12))
    centre, width = cut(graph, shapes, 1, 5, 6), cut(graph, shapes, 1, 6, 7)
    away = graph.op("Div", graph.op("Sub", graph.weight(network.centres), centre), width)
    bell = graph.op("Exp", graph.op("Neg", graph.op("Mul", away, away)))
    hiss = graph.op("Mul", cut(graph, shapes, 1, 4, 5), number(graph, 0.1))
    return graph.op("Mul", loud, voice), graph.op("Mul", hiss, bell)


def number(graph, value):
    """A constant of rank 0."""
    return graph.weight(np.float32(value))


def axes(graph, *numbers):
    """A list of axes, or a shape."""
    return graph.raw(np.array(numbers, np.int64))


def cut(graph, x, axis, start, end):
    """A part of a value along one axis."""
    return graph.op("Slice", x, axes(graph, start), axes(graph, end), axes(graph, axis))


def nearest(graph, counts, rows):
    """1 where a count equals a row's number, else 0."""
    return graph.op(
        "Relu", graph.op("Sub", number(graph, 1), graph.op("Abs", graph.op("Sub", counts, rows)))
    )
