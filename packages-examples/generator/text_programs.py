"""Text networks of `transformers` as networks to export to ExecuTorch: with the same weights.

A program keeps the keys and values of a conversation itself, at positions that its caller names.
"""

import torch
from torch import nn
from torch.nn import functional as F

from .networks import RMSNorm


class CachedLayer(nn.Module):
    """A Llama layer over a key/value cache of fixed length."""

    def __init__(self, layer, config, longest):
        super().__init__()
        own = layer.self_attn
        self.query, self.key, self.value, self.out = own.q_proj, own.k_proj, own.v_proj, own.o_proj
        self.gate, self.up, self.down = layer.mlp.gate_proj, layer.mlp.up_proj, layer.mlp.down_proj
        self.attention_norm = norm_like(layer.input_layernorm)
        self.feed_norm = norm_like(layer.post_attention_layernorm)
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.size = config.head_dim
        shape = (1, longest, self.kv_heads, self.size)
        self.register_buffer("key_cache", torch.zeros(shape))
        self.register_buffer("value_cache", torch.zeros(shape))

    def forward(self, x, positions, turn, bias):
        x = x + self._attend(self.attention_norm(x), positions, turn, bias)
        normed = self.feed_norm(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))

    def _attend(self, x, positions, turn, bias):
        length = x.shape[1]
        query = rotate(self.query(x).view(1, length, self.heads, self.size), turn)
        key = rotate(self.key(x).view(1, length, self.kv_heads, self.size), turn)
        self.key_cache[:, positions] = key
        self.value_cache[:, positions] = self.value(x).view(1, length, self.kv_heads, self.size)
        # Heads that share keys are stacked along the positions, so that nothing is repeated.
        group = self.heads // self.kv_heads
        query = query.view(length, self.kv_heads, group, self.size)
        query = query.permute(1, 0, 2, 3).flatten(1, 2)
        scores = torch.bmm(query, self.key_cache[0].permute(1, 2, 0)) * self.size**-0.5
        scores = scores.unflatten(1, (length, group)) + bias[:, None, :]
        weights = torch.softmax(scores, dim=-1).flatten(1, 2)
        mixed = torch.bmm(weights, self.value_cache[0].transpose(0, 1))
        mixed = mixed.unflatten(1, (length, group))
        return self.out(mixed.transpose(0, 1).flatten(1)[None])


def norm_like(layer):
    """The same norm with our formula, which needs no operator of its own."""
    norm = RMSNorm(layer.weight.shape[0])
    assert layer.variance_epsilon == 1e-5, "RMSNorm has this one"
    norm.scale = layer.weight
    return norm


def rotate(x, turn):
    """Rotary position embedding on the two halves of the last dimension."""
    cosine, sine = turn
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, first * sine + second * cosine), dim=-1)


class CachedLlama(nn.Module):
    """Tokens and the position of the first in, logits of the last out."""

    def __init__(self, model, longest):
        super().__init__()
        self.tokens = model.model.embed_tokens
        self.layers = nn.ModuleList(
            CachedLayer(layer, model.config, longest) for layer in model.model.layers
        )
        self.norm = norm_like(model.model.norm)
        self.longest = longest
        self.register_buffer("frequencies", model.model.rotary_emb.inv_freq.clone())

    def forward(self, tokens, input_pos):
        return self.decode(self.tokens(tokens), input_pos)

    def decode(self, x, input_pos):
        """Embeddings of tokens and the position of the first in, logits of the last out."""
        positions = input_pos + torch.arange(x.shape[1])
        angles = positions[:, None, None] * self.frequencies
        turn = angles.cos(), angles.sin()
        bias = torch.where(torch.arange(self.longest) > positions[:, None], -1e9, 0.0)
        for layer in self.layers:
            x = layer(x, positions, turn, bias)
        # The table times a column: it is no weight of a linear layer then, which a delegate would
        # keep a second copy of.
        last = self.norm(x[0, -1:]).transpose(0, 1)
        return torch.mm(self.tokens.weight, last).view(1, -1)


class EmbeddedLlama(CachedLlama):
    """A Llama that takes embeddings in place of tokens."""

    def forward(self, embeddings, input_pos):
        return self.decode(embeddings, input_pos)


class SentenceVector(nn.Module):
    """Tokens and their mask to one vector of unit length: the mean of the states of the text."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask):
        states = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        weights = attention_mask.unsqueeze(-1).to(states.dtype)
        mean = (states * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1e-9)
        return F.normalize(mean, dim=1)
