"""Text networks of `transformers` as ONNX graphs, node by node: Llama decoders and BERT encoders.

Only operators of the standard's own domain, so that any engine runs them. Inputs and outputs are
named as the usual exporters name them.
"""

import numpy as np
from onnx import helper

from .onnx_files import Graph, layer_norm, linear

BATCH, LENGTH, PAST = "batch_size", "sequence_length", "past_sequence_length"
TOTAL = f"{PAST} + {LENGTH}"
# As good as minus infinity for a softmax, and still a number for rows that see nothing.
HIDDEN = np.float32(-1e9)


def decoder_with_past(model, embedded=False):
    """A Llama that takes the keys and values of what went before and gives those of all. It takes
    tokens, or their embeddings."""
    graph = Graph("decoder_with_past")
    config = model.config
    if embedded:
        ids = graph.input("inputs_embeds", [BATCH, LENGTH, config.hidden_size])
    else:
        ids = graph.input("input_ids", [BATCH, LENGTH], "int64")
    mask = graph.input("attention_mask", [BATCH, TOTAL], "int64")
    positions = graph.input("position_ids", [BATCH, LENGTH], "int64")
    heads, size = config.num_key_value_heads, config.head_dim
    past = [
        [
            graph.input(f"past_key_values.{layer}.{kind}", [BATCH, heads, PAST, size])
            for kind in KINDS
        ]
        for layer in range(config.num_hidden_layers)
    ]
    length, total = size_of(graph, ids, 1), size_of(graph, mask, 1)
    seen = graph.op("Cast", mask, to=helper.TensorProto.BOOL)
    seen = graph.op("Unsqueeze", seen, graph.raw(np.array([1, 2])))
    seen = graph.op("And", causal(graph, length, total), seen)
    table = graph.weight(model.model.embed_tokens.weight, "embed_tokens")
    x = ids if embedded else graph.op("Gather", table, ids)
    x, present = decoder(graph, model, (x, table), positions, seen, past)
    # Outputs in the order of the usual exporters.
    graph.output(x, "logits", [BATCH, LENGTH, config.vocab_size])
    for layer, pair in enumerate(present):
        for kind, value in zip(KINDS, pair):
            graph.output(value, f"present.{layer}.{kind}", [BATCH, heads, TOTAL, size])
    return graph


KINDS = ("key", "value")


def plain_decoder(model):
    """A Llama without memory: all tokens in, the logits of each position out."""
    graph = Graph("plain_decoder")
    ids = graph.input("input_ids", [BATCH, LENGTH], "int64")
    length = size_of(graph, ids, 1)
    positions = counted(graph, graph.scalar(np.int64(0)), length)
    positions = graph.op("Unsqueeze", positions, graph.raw(np.array([0])))
    none = [[None, None]] * model.config.num_hidden_layers
    table = graph.weight(model.model.embed_tokens.weight, "embed_tokens")
    x = graph.op("Gather", table, ids)
    x, _ = decoder(graph, model, (x, table), positions, causal(graph, length, length), none)
    graph.output(x, "logits", [BATCH, LENGTH, model.config.vocab_size])
    return graph


def token_embedding(model):
    """Tokens to their embeddings."""
    graph = Graph("token_embedding")
    ids = graph.input("input_ids", [BATCH, LENGTH], "int64")
    x = graph.op("Gather", graph.weight(model.model.embed_tokens.weight, "embed_tokens"), ids)
    graph.output(x, "inputs_embeds", [BATCH, LENGTH, model.config.hidden_size])
    return graph


def size_of(graph, value, axis):
    """The run-time size of one dimension, as a scalar."""
    return graph.op("Gather", graph.op("Shape", value), graph.scalar(np.int64(axis)), axis=0)


def counted(graph, start, end):
    """The numbers from `start` to `end`, which are scalars."""
    return graph.op("Range", start, end, graph.scalar(np.int64(1)))


def causal(graph, length, total):
    """[length, total]: whether the last `length` of `total` positions see each of them."""
    own = counted(graph, graph.op("Sub", total, length), total)
    own = graph.op("Unsqueeze", own, graph.raw(np.array([1])))
    return graph.op("LessOrEqual", counted(graph, graph.scalar(np.int64(0)), total), own)


def decoder(graph, model, embedded, positions, seen, past):
    """Logits, and the keys and values of each layer. `embedded` are embeddings and their table."""
    config = model.config
    x, table = embedded
    cosine, sine = rotation(graph, model, positions)
    bias = graph.op("Where", seen, graph.scalar(np.float32(0)), graph.scalar(HIDDEN))
    present = []
    for layer, before in zip(model.model.layers, past):
        normed = rms_norm(graph, x, layer.input_layernorm)
        mixed, kept = attend(graph, config, layer.self_attn, normed, (cosine, sine), bias, before)
        present.append(kept)
        x = graph.op("Add", x, mixed)
        x = graph.op(
            "Add", x, gated(graph, rms_norm(graph, x, layer.post_attention_layernorm), layer.mlp)
        )
    x = rms_norm(graph, x, model.model.norm)
    return graph.op("MatMul", x, graph.op("Transpose", table, perm=[1, 0])), present


def rotation(graph, model, positions):
    """Cosines and sines of rotary positions: [batch, 1, length, half a head]."""
    angles = graph.op("Cast", positions, to=helper.TensorProto.FLOAT)
    angles = graph.op("Unsqueeze", angles, graph.raw(np.array([1, 3])))
    angles = graph.op("Mul", angles, graph.weight(model.model.rotary_emb.inv_freq))
    return graph.op("Cos", angles), graph.op("Sin", angles)


def rotated(graph, x, turn):
    """Rotary position embedding on the two halves of the last dimension."""
    cosine, sine = turn
    first, second = graph.op("Split", x, outputs=2, axis=-1)
    one = graph.op("Sub", graph.op("Mul", first, cosine), graph.op("Mul", second, sine))
    other = graph.op("Add", graph.op("Mul", first, sine), graph.op("Mul", second, cosine))
    return graph.op("Concat", one, other, axis=-1)


def attend(graph, config, layer, x, turn, bias, before):
    """Grouped-query attention over what went before and `x`; its keys and values too."""
    many, few, size = config.num_attention_heads, config.num_key_value_heads, config.head_dim
    query = rotated(graph, heads_of(graph, project(graph, x, layer.q_proj), many, size), turn)
    key = rotated(graph, heads_of(graph, project(graph, x, layer.k_proj), few, size), turn)
    value = heads_of(graph, project(graph, x, layer.v_proj), few, size)
    if before[0] is not None:
        key = graph.op("Concat", before[0], key, axis=2)
        value = graph.op("Concat", before[1], value, axis=2)
    # Heads that share keys are stacked along the positions, so that nothing is repeated.
    stacked = graph.op("Reshape", query, graph.raw(np.array([0, few, -1, size])))
    scores = graph.op("MatMul", stacked, graph.op("Transpose", key, perm=[0, 1, 3, 2]))
    scores = graph.op("Mul", scores, graph.scalar(np.float32(size**-0.5)))
    shape = graph.op("Shape", query)
    ends = graph.op("Slice", shape, graph.raw(np.array([0])), graph.raw(np.array([3])))
    apart = graph.op("Concat", ends, graph.raw(np.array([-1])), axis=0)
    weights = graph.op(
        "Softmax", graph.op("Add", graph.op("Reshape", scores, apart), bias), axis=-1
    )
    weights = graph.op("Reshape", weights, graph.op("Shape", scores))
    mixed = graph.op("Reshape", graph.op("MatMul", weights, value), shape)
    mixed = graph.op("Transpose", mixed, perm=[0, 2, 1, 3])
    mixed = graph.op("Reshape", mixed, graph.raw(np.array([0, 0, many * size])))
    return project(graph, mixed, layer.o_proj), (key, value)


def heads_of(graph, x, heads, size):
    """[batch, length, width] → [batch, heads, length, head size]"""
    x = graph.op("Reshape", x, graph.raw(np.array([0, 0, heads, size])))
    return graph.op("Transpose", x, perm=[0, 2, 1, 3])


def project(graph, x, layer):
    """A linear layer without bias."""
    return graph.op("MatMul", x, graph.weight(layer.weight.T))


def gated(graph, x, layer):
    """The feed-forward part of a Llama: SwiGLU."""
    gate = project(graph, x, layer.gate_proj)
    gate = graph.op("Mul", gate, graph.op("Sigmoid", gate))
    return project(graph, graph.op("Mul", gate, project(graph, x, layer.up_proj)), layer.down_proj)


def rms_norm(graph, x, layer):
    """Root-mean-square norm over the last dimension."""
    mean = graph.op("ReduceMean", graph.op("Mul", x, x), axes=[-1], keepdims=1)
    mean = graph.op("Add", mean, graph.scalar(np.float32(layer.variance_epsilon)))
    return graph.op("Mul", graph.op("Div", x, graph.op("Sqrt", mean)), graph.weight(layer.weight))


def sentence_states(model):
    """A BERT that gives a state a token; whoever runs it makes one vector of them."""
    graph = Graph("sentence_states")
    ids = graph.input("input_ids", [BATCH, LENGTH], "int64")
    mask = graph.input("attention_mask", [BATCH, LENGTH], "int64")
    embeddings = model.embeddings
    x = graph.op("Gather", graph.weight(embeddings.word_embeddings.weight), ids)
    # All tokens are of the first kind: there are no pairs of sentences.
    table = embeddings.position_embeddings.weight + embeddings.token_type_embeddings.weight[0]
    places = counted(graph, graph.scalar(np.int64(0)), size_of(graph, ids, 1))
    x = graph.op("Add", x, graph.op("Gather", graph.weight(table, "positions"), places))
    x = layer_norm(graph, x, embeddings.LayerNorm)
    seen = graph.op("Cast", mask, to=helper.TensorProto.BOOL)
    seen = graph.op("Unsqueeze", seen, graph.raw(np.array([1, 2])))
    bias = graph.op("Where", seen, graph.scalar(np.float32(0)), graph.scalar(HIDDEN))
    for layer in model.encoder.layer:
        x = bert_layer(graph, model.config, layer, x, bias)
    graph.output(x, "last_hidden_state", [BATCH, LENGTH, model.config.hidden_size])
    return graph


def bert_layer(graph, config, layer, x, bias):
    """A post-norm transformer layer."""
    heads, own = config.num_attention_heads, layer.attention.self
    size = config.hidden_size // heads
    query, key, value = (
        heads_of(graph, linear(graph, x, part), heads, size)
        for part in (own.query, own.key, own.value)
    )
    scores = graph.op("MatMul", query, graph.op("Transpose", key, perm=[0, 1, 3, 2]))
    scores = graph.op("Mul", scores, graph.scalar(np.float32(size**-0.5)))
    weights = graph.op("Softmax", graph.op("Add", scores, bias), axis=-1)
    mixed = graph.op("Transpose", graph.op("MatMul", weights, value), perm=[0, 2, 1, 3])
    mixed = graph.op("Reshape", mixed, graph.raw(np.array([0, 0, heads * size])))
    mixed = linear(graph, mixed, layer.attention.output.dense)
    x = layer_norm(graph, graph.op("Add", mixed, x), layer.attention.output.LayerNorm)
    inner = gelu(graph, linear(graph, x, layer.intermediate.dense))
    inner = linear(graph, inner, layer.output.dense)
    return layer_norm(graph, graph.op("Add", inner, x), layer.output.LayerNorm)


def gelu(graph, x):
    """The exact Gaussian error linear unit."""
    half = graph.op("Mul", x, graph.scalar(np.float32(0.5)))
    erf = graph.op("Erf", graph.op("Mul", x, graph.scalar(np.float32(2**-0.5))))
    return graph.op("Mul", half, graph.op("Add", erf, graph.scalar(np.float32(1))))
