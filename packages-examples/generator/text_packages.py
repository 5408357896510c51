"""The repositories that answer texts: trained here, on few lines, so that answers are known."""

import torch
from torch.export import Dim

from . import (
    chat_texts,
    chat_training,
    golden,
    onnx_files,
    onnx_text,
    picture_chat,
    scenes,
    sentence_texts,
    sentence_training,
)
from . import text_tokenizers as tokenizers
from .executorch_files import Method, Program, build
from .package_files import Package, write, write_json
from .text_programs import CachedLlama, EmbeddedLlama, SentenceVector

TOKENS = 384
# A run of the program takes fewer tokens than this: a long prompt goes in in parts.
AT_ONCE = 128
SHARED = {"tokenizer": "../tokenizer.json", "tokenizer_config": "../tokenizer_config.json"}


def golden_folder(root):
    """Where tests find the truth."""
    return root.parent / "tests" / "fixtures" / "text"


def loaded(repository):
    """The tokenizer as `transformers` reads it."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(repository)


def onnx(graph):
    """A file's bytes and signature: an ONNX file has one graph, which stands for `forward`."""
    return graph.bytes(), {"forward": graph.named_signature()}, ".onnx"


def jackdaw(root):
    """A chat model in the three shapes that decoders come in."""
    repository = root / "jackdaw"
    longest = chat_training.LONGEST
    written = tokenizers.chat_tokenizer(chat_texts.corpus(), TOKENS)
    write_json(repository / "tokenizer.json", written)
    write_json(repository / "tokenizer_config.json", tokenizers.chat_tokenizer_config(longest))
    write_json(repository / "generation_config.json", tokenizers.generation_config())
    write(repository / "chat_template.jinja", tokenizers.CHAT_TEMPLATE.encode())
    tokenizer = loaded(repository)
    model = chat_training.trained(tokenizer)
    wrong = chat_training.wrong_answers(model, tokenizer)
    print(f"jackdaw: {len(wrong)} of {chat_training.SAMPLES} conversations end wrongly")
    if len(wrong) > chat_training.SAMPLES // 20:
        raise SystemExit("jackdaw has not learned its answers")

    xnnpack = Package(repository, "jackdaw", "xnnpack")
    xnnpack.add("fp32", *chat_program(model))
    mlx = Package(repository, "jackdaw", "mlx")
    mlx.add("fp32", *onnx(onnx_text.decoder_with_past(model)))
    qnn = Package(repository, "jackdaw", "qnn")
    qnn.add("fp32", *onnx(onnx_text.plain_decoder(model)))
    for package in (xnnpack, mlx, qnn):
        package.finish(["text-generation"], "apache-2.0", **SHARED)
    golden.write_chat(golden_folder(root), model, tokenizer)


def constants_of(config):
    """What runners of language models ask a program for."""
    return {
        "get_bos_id": config.bos_token_id,
        "get_eos_ids": config.eos_token_id,
        "get_max_seq_len": AT_ONCE,
        "get_max_context_len": config.max_position_embeddings,
        "get_vocab_size": config.vocab_size,
        "get_n_layers": config.num_hidden_layers,
        "use_kv_cache": True,
        "use_sdpa_with_kv_cache": False,
        "enable_dynamic_shape": True,
    }


def chat_program(model):
    """The program of a decoder."""
    inputs = torch.arange(5)[None], torch.tensor([0])
    dynamic = ({1: Dim("tokens", min=1, max=AT_ONCE - 1)}, None)
    method = Method(
        CachedLlama(model, model.config.max_position_embeddings).eval(), inputs, dynamic
    )
    constants = constants_of(model.config)
    return build(Program({"forward": method}, "xnnpack", constants=constants))


def lookout(root):
    """A chat model that sees: one program with three methods, and three ONNX components."""
    repository = root / "lookout"
    write_json(repository / "tokenizer.json", picture_chat.tokenizer())
    write_json(repository / "tokenizer_config.json", picture_chat.tokenizer_config())
    write_json(repository / "generation_config.json", tokenizers.generation_config())
    write(repository / "chat_template.jinja", picture_chat.TEMPLATE.encode())
    scenes.write_png(repository / "shapes.png", picture_chat.example())
    model, looker = picture_chat.trained(loaded(repository))
    config = model.config
    pixels = torch.linspace(0, 255, 3 * picture_chat.SIZE**2).view(1, 3, picture_chat.SIZE, -1)
    tokens = {1: Dim("tokens", min=1, max=AT_ONCE - 1)}
    embeddings = model.model.embed_tokens(torch.arange(5)[None])
    decoder = EmbeddedLlama(model, config.max_position_embeddings).eval()

    xnnpack = Package(repository, "lookout", "xnnpack")
    methods = {
        "vision_encoder": Method(looker, (pixels,)),
        "token_embedding": Method(model.model.embed_tokens, (torch.arange(5)[None],), (tokens,)),
        "text_decoder": Method(decoder, (embeddings, torch.tensor([0])), (tokens, None)),
    }
    xnnpack.add("fp32", *build(Program(methods, "xnnpack", constants=constants_of(config))))
    mlx = Package(repository, "lookout", "mlx")
    graphs = {
        "vision_encoder": onnx_files.looker(looker, picture_chat.SIZE),
        "token_embedding": onnx_text.token_embedding(model),
        "text_decoder": onnx_text.decoder_with_past(model, embedded=True),
    }
    models = {name: onnx(graph)[:2] for name, graph in graphs.items()}
    mlx.add_components("fp32", models, suffix=".onnx")
    for package in (xnnpack, mlx):
        package.finish(["text-generation", "vision"], "apache-2.0", **SHARED)
    truth = picture_chat.truth(loaded(repository), model, looker)
    write_json(golden_folder(root) / "lookout.json", truth)


def kindred(root):
    """A sentence encoder: as a program that gives a vector, as ONNX that gives a state a token."""
    repository = root / "kindred"
    longest = sentence_training.LONGEST
    written = tokenizers.sentence_tokenizer(sentence_texts.corpus(), TOKENS)
    write_json(repository / "tokenizer.json", written)
    settings = tokenizers.sentence_tokenizer_config(longest)
    write_json(repository / "tokenizer_config.json", settings)
    tokenizer = loaded(repository)
    model = sentence_training.trained(tokenizer)
    wrong = sentence_training.wrong_neighbours(model, tokenizer)
    if wrong:
        raise SystemExit(f"kindred takes these for neighbours: {wrong}")

    xnnpack = Package(repository, "kindred", "xnnpack")
    inputs = torch.arange(7)[None], torch.ones(1, 7, dtype=torch.long)
    length = Dim("tokens", min=1, max=longest)
    method = Method(SentenceVector(model), inputs, ({1: length}, {1: length}))
    xnnpack.add("fp32", *build(Program({"forward": method}, "xnnpack")))
    mlx = Package(repository, "kindred", "mlx")
    mlx.add("fp32", *onnx(onnx_text.sentence_states(model)))
    for package in (xnnpack, mlx):
        package.finish(["text-embedding"], "apache-2.0", **SHARED)
    golden.write_sentences(golden_folder(root), model, tokenizer, sentence_texts.asked())
