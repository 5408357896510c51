"""The repositories. One function each: which networks, which backends, which precisions."""

import copy

import torch
from torch.export import Dim

from . import (
    networks,
    onnx_files,
    onnx_int8,
    onnx_sound,
    scene_training,
    scenes,
    side_files,
    speech,
    speech_training,
    text_packages,
)
from .executorch_files import Method, Program, build
from .package_files import Package, write, write_json, write_lines

BATCH = Dim("batch", min=1, max=8)
SIDE = "../"
VOCABULARY = 64


def image(size, batch=1, channels=3):
    """Example pixels."""
    return torch.linspace(-1, 1, batch * channels * size * size).view(batch, channels, size, size)


def ids(length):
    """Example token ids."""
    return (torch.arange(length) % VOCABULARY).view(1, length)


def forward(network, *inputs, dynamic=None, samples=()):
    """The usual single method."""
    return {"forward": Method(network, inputs, dynamic, samples)}


def onnx_forward(graph, names=False):
    """An ONNX file has one graph and no method names: it stands for `forward`."""
    return {"forward": graph.named_signature() if names else graph.plain_signature()}


def glimpse(root):
    """Image classification on all five backends, fp32 to int8; a download-counter stub."""
    repository = root / "glimpse"
    write(repository / "config.json", b'{"model_type": "glimpse"}\n')
    write_lines(repository / "labels.txt", scenes.SHAPES)
    scenes.write_png(repository / "shape.png", scenes.labelled("star", "yellow"))
    network = scene_training.classifier()
    pictures = scene_training.calibration()
    half = forward(copy.deepcopy(network).half(), image(32).half())

    xnnpack = Package(repository, "glimpse", "xnnpack")
    any_batch = forward(network, image(32, batch=2), dynamic=({0: BATCH},))
    xnnpack.add("fp32", *build(Program(any_batch, "xnnpack")))
    xnnpack.add("fp16", *build(Program(half, "xnnpack")))
    static = forward(network, image(32), samples=[(picture,) for picture in pictures])
    xnnpack.add("int8", *build(Program(static, "xnnpack", quantize="int8")))

    coreml = Package(repository, "glimpse", "coreml")
    coreml.add("fp16", *build(Program(static, "coreml")))

    vulkan = Package(repository, "glimpse", "vulkan")
    vulkan.add("fp32", *build(Program(static, "vulkan")))
    vulkan.add("fp16", *build(Program(static, "vulkan", options={"force_fp16": True})))

    mlx = Package(repository, "glimpse", "mlx")
    mlx.add("fp32", *build(Program(any_batch, "mlx")))

    qnn = Package(repository, "glimpse", "qnn")
    graph = onnx_int8.classifier(network, torch.cat(pictures), "batch")
    qnn.add("int8", graph.bytes(), onnx_forward(graph), ".onnx")
    for package in (xnnpack, coreml, vulkan, mlx, qnn):
        package.finish(["classification", "vision"], "bsd-3-clause")


def hush_sentence(root):
    """Sentence embeddings of dynamic length; a shared tokenizer; `get_model_schema`."""
    repository = root / "hush-sentence"
    write_json(repository / "tokenizer.json", side_files.word_tokenizer())
    write_json(repository / "tokenizer_config.json", side_files.word_tokenizer_config())
    network = networks.seeded(2, networks.SentenceEncoder)
    length = Dim("length", min=1, max=23)
    methods = forward(network, ids(12), dynamic=({1: length},))
    shared = {
        "tokenizer": SIDE + "tokenizer.json",
        "tokenizer_config": SIDE + "tokenizer_config.json",
    }

    xnnpack = Package(repository, "hush_sentence", "xnnpack")
    xnnpack.add("fp32", *build(Program(methods, "xnnpack", schema_companion=True)))
    xnnpack.add(
        "8da4w", *build(Program(methods, "xnnpack", quantize="8da4w", schema_companion=True))
    )
    xnnpack.finish(["text-embedding"], "apache-2.0", "hush", **shared)

    mlx = Package(repository, "hush_sentence", "mlx")
    graph = onnx_files.sentence_encoder(network)
    mlx.add("fp32", graph.bytes(), onnx_forward(graph), ".onnx")
    mlx.finish(["text-embedding"], "apache-2.0", "hush", **shared)


def murmur_vad(root):
    """Voice activity detection over any number of frames, as a program and as ONNX."""
    repository = root / "murmur-vad"
    speech.write_wav(repository / "words.wav", "stɑp.   ɡO lɛft")
    network = speech_training.voice_activity()
    frames = Dim("frames", min=100, max=1000)

    xnnpack = Package(repository, "murmur_vad", "xnnpack")
    samples = torch.linspace(-1, 1, 120 * 512).view(120, 512)
    methods = forward(network, samples, dynamic=({0: frames},))
    xnnpack.add("fp32", *build(Program(methods, "xnnpack")))
    qnn = Package(repository, "murmur_vad", "qnn")
    graph = onnx_sound.voice_activity(network)
    qnn.add("fp32", graph.bytes(), onnx_forward(graph), ".onnx")
    for package in (xnnpack, qnn):
        package.finish(["voice-activity-detection"], "mit", "murmur")


def pebble(root):
    """A language model with a key/value cache, in two sizes; the tokenizer is two levels up."""
    repository = root / "pebble"
    write_json(repository / "tokenizer.json", side_files.pair_tokenizer())
    write_json(repository / "tokenizer_config.json", side_files.chat_tokenizer_config())
    constants = {
        "get_bos_id": 1,
        "get_eos_ids": [2],
        "get_max_seq_len": 32,
        "get_max_context_len": 32,
        "get_vocab_size": VOCABULARY,
        "use_kv_cache": True,
        "enable_dynamic_shape": True,
    }
    tokens = Dim("tokens", min=1, max=31)

    def prompt(network):
        dynamic = ({1: tokens}, {0: tokens})
        return forward(network, ids(5), torch.arange(5), dynamic=dynamic)

    def one_token(network):
        return forward(network, ids(1), torch.arange(1))

    small = Package(repository, "pebble", "xnnpack", "0_6b")
    network = networks.seeded(4, lambda: networks.Llama(width=24))
    small.add("fp32", *build(Program(prompt(network), "xnnpack", constants=constants)))
    quantized = Program(
        prompt(network), "xnnpack", quantize="8da4w", group=None, constants=constants
    )
    small.add("8da4w", *build(quantized))

    constants = constants | {"enable_dynamic_shape": False}
    large = Package(repository, "pebble", "mlx", "1b")
    network = networks.seeded(5, networks.Llama).to(torch.bfloat16)
    large.add("bf16", *build(Program(one_token(network), "mlx", constants=constants)))
    quantized = Program(one_token(network), "mlx", quantize="int4", constants=constants)
    large.add("int4", *build(quantized))
    for package in (small, large):
        package.finish(
            ["text-generation"],
            "llama-3.2-community",
            tokenizer="../../tokenizer.json",
            tokenizer_config="../../tokenizer_config.json",
        )


def scribe(root):
    """Speech to text two ways: one file with two methods, and two ONNX components."""
    repository = root / "scribe-tiny-en"
    write_json(repository / "tokenizer.json", side_files.speech_tokenizer())
    words = ("seven", "three", "one", "open", "right")
    speech.write_wav(repository / "words.wav", "  ".join(speech.WORDS[word] for word in words))
    encoder = speech_training.listener()
    decoder = speech_training.decoder()
    mel = torch.linspace(-1, 1, 80 * 3000).view(1, 80, 3000)
    states = encoder(mel).contiguous()
    tokens = Dim("tokens", min=1, max=256)
    decode = Method(decoder, (ids(8), states), ({1: tokens}, None))
    constants = {"get_sample_rate": speech.RATE}

    xnnpack = Package(repository, "scribe_tiny_en", "xnnpack")
    methods = {"encode": Method(encoder, (mel,)), "decode": decode}
    xnnpack.add("fp32", *build(Program(methods, "xnnpack", constants=constants)))

    mlx = Package(repository, "scribe_tiny_en", "mlx")
    graphs = {
        "encoder": onnx_sound.audio_encoder(encoder, 3000),
        "decoder": onnx_sound.text_decoder(decoder, states.shape[1:]),
    }
    models = {name: (graph.bytes(), onnx_forward(graph, True)) for name, graph in graphs.items()}
    mlx.add_components("fp32", models, suffix=".onnx")
    for package in (xnnpack, mlx):
        package.finish(["speech-to-text"], "mit", "scribe", tokenizer=SIDE + "tokenizer.json")


def pocket_diffusion(root):
    """Text to image: three models, and two components that are no models."""
    repository = root / "pocket-diffusion"
    write_json(repository / "scheduler" / "scheduler_config.json", side_files.scheduler_config())
    write_json(repository / "tokenizer" / "tokenizer.json", side_files.word_tokenizer())
    others = {
        "scheduler": SIDE + "scheduler/scheduler_config.json",
        "tokenizer": SIDE + "tokenizer/tokenizer.json",
    }
    write_lines(
        repository / "recipe.toml",
        ['base = "image-generation"', 'source = "the training script"', "", "[values]"]
        + ["guidance = 1.5", "steps = 20"],
    )
    reading, denoiser, decoder = scene_training.painter()
    states = reading(ids(8))
    latents = torch.linspace(-1, 1, 4 * 8 * 8).view(1, 4, 8, 8)
    methods = {
        "text_encoder": forward(reading, ids(8)),
        "unet": forward(denoiser, latents, torch.tensor([[0.5]]), states),
        "vae": forward(decoder, latents),
    }
    package = Package(repository, "pocket_diffusion", "xnnpack")
    models = {name: build(Program(method, "xnnpack")) for name, method in methods.items()}
    package.add_components("fp32", models, others)
    package.finish(["image-generation"], "creativeml-openrail-m")


def twin_view(root):
    """Images and sentences in one space: two components, int8 beside fp32."""
    repository = root / "twin-view"
    write_json(repository / "tokenizer.json", side_files.word_tokenizer())
    scenes.write_png(repository / "shape.png", scenes.labelled("circle", "red"))
    images, words = scene_training.pairs()
    pictures = scene_training.calibration()
    methods = {
        "image_encoder": forward(images, image(32), samples=[(it,) for it in pictures]),
        "text_encoder": forward(words, ids(16)),
    }
    package = Package(repository, "twin_view", "xnnpack")
    for precision, quantize in (("fp32", None), ("int8", "int8")):
        models = {
            name: build(Program(method, "xnnpack", quantize=quantize))
            for name, method in methods.items()
        }
        package.add_components(precision, models)
    package.finish(
        ["image-embedding", "text-embedding"], "apache-2.0", tokenizer=SIDE + "tokenizer.json"
    )


def mosaic(root):
    """Semantic segmentation on Vulkan, in a size."""
    repository = root / "mosaic"
    write_lines(repository / "nano" / "labels.txt", scenes.LANDSCAPE)
    scenes.write_png(repository / "landscape.png", scenes.example_landscape())
    network = scene_training.segmenter()
    package = Package(repository, "mosaic", "vulkan", "nano")
    package.add("fp32", *build(Program(forward(network, image(32)), "vulkan")))
    package.finish(["semantic-segmentation"], "apache-2.0")


def spotter(root):
    """Object detection as ONNX for QNN: fp32, and fp16 with float16 inputs and outputs."""
    repository = root / "spotter"
    write_lines(repository / "s" / "labels.txt", scenes.SHAPES[: scene_training.FOUND])
    scenes.write_png(repository / "shapes.png", scenes.example_shapes())
    network = scene_training.detector()
    package = Package(repository, "spotter", "qnn", "s")
    for precision, real in (("fp32", "float32"), ("fp16", "float16")):
        graph = onnx_files.detector(network, 64, real)
        package.add(precision, graph.bytes(), onnx_forward(graph), ".onnx")
    package.finish(["object-detection"], "agpl-3.0", "spotter")


def readline(root):
    """Text detection and recognition: one pipeline, an alphabet beside the models."""
    repository = root / "readline-ocr"
    write_json(repository / "alphabet.json", side_files.alphabet())
    scenes.write_png(repository / "page.png", scene_training.example_page())
    width = Dim("width", min=4, max=256)
    line = torch.linspace(-1, 1, 16 * 64).view(1, 1, 16, 64)
    methods = {
        "detector": forward(scene_training.finder(), image(256)),
        "recognizer": forward(scene_training.reader(), line, dynamic=({3: 4 * width},)),
    }
    package = Package(repository, "readline_ocr", "xnnpack")
    models = {name: build(Program(method, "xnnpack")) for name, method in methods.items()}
    package.add_components("fp32", models, {"alphabet": SIDE + "alphabet.json"})
    package.finish(["text-detection", "text-recognition"], "apache-2.0", "readline")


def watercolor(root):
    """Style transfer: an ONNX model for MLX and a program for Core ML."""
    repository = root / "watercolor"
    scenes.write_png(repository / "landscape.png", scenes.example_landscape())
    network = scene_training.stylizer()
    mlx = Package(repository, "watercolor", "mlx")
    graph = onnx_files.stylizer(network, 32)
    mlx.add("fp32", graph.bytes(), onnx_forward(graph, names=True), ".onnx")
    coreml = Package(repository, "watercolor", "coreml")
    coreml.add("fp16", *build(Program(forward(network, image(32)), "coreml")))
    for package in (mlx, coreml):
        package.finish(["style-transfer"], "cc-by-4.0")


def parlor(root):
    """Text to speech: an ONNX model whose weights lie in a second file."""
    package = Package(root / "parlor-tts", "parlor_tts", "xnnpack", "82m")
    graph = onnx_sound.speech_synthesizer(speech.SpeechSynthesizer())
    name = package.file_name("fp32", ".onnx")
    data, blob = onnx_files.with_external_data(graph, name + ".data")
    write(package.folder / (name + ".data"), blob)
    write_json(package.folder / (name + ".json"), side_files.voice_settings())
    package.add("fp32", data, onnx_forward(graph), ".onnx")
    package.finish(["text-to-speech"], "apache-2.0", "parlor")


REPOSITORIES = {
    "glimpse": glimpse,
    "hush-sentence": hush_sentence,
    "murmur-vad": murmur_vad,
    "pebble": pebble,
    "scribe-tiny-en": scribe,
    "pocket-diffusion": pocket_diffusion,
    "twin-view": twin_view,
    "mosaic": mosaic,
    "spotter": spotter,
    "readline-ocr": readline,
    "watercolor": watercolor,
    "parlor-tts": parlor,
    "jackdaw": text_packages.jackdaw,
    "lookout": text_packages.lookout,
    "kindred": text_packages.kindred,
}
