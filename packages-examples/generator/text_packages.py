"""The repositories that answer texts: trained here, on few lines, so that answers are known."""

import torch
from torch.export import Dim

from . import chat_texts, chat_training, golden, onnx_text, sentence_texts, sentence_training
from . import text_tokenizers as tokenizers
from .executorch_files import Method, Program, build
from .package_files import Package, write, write_json
from .text_programs import CachedLlama, SentenceVector

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


def chat_program(model):
    """The program, with what runners of language models ask it for."""
    config = model.config
    longest = config.max_position_embeddings
    constants = {
        "get_bos_id": config.bos_token_id,
        "get_eos_ids": config.eos_token_id,
        "get_max_seq_len": AT_ONCE,
        "get_max_context_len": longest,
        "get_vocab_size": config.vocab_size,
        "get_n_layers": config.num_hidden_layers,
        "use_kv_cache": True,
        "use_sdpa_with_kv_cache": False,
        "enable_dynamic_shape": True,
    }
    inputs = torch.arange(5)[None], torch.tensor([0])
    dynamic = ({1: Dim("tokens", min=1, max=AT_ONCE - 1)}, None)
    method = Method(CachedLlama(model, longest).eval(), inputs, dynamic)
    return build(Program({"forward": method}, "xnnpack", constants=constants))


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
