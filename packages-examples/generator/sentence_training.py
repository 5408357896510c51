"""Trains kindred: a BERT of 23,000 parameters that lays sentences of one topic near each other.

The network is `transformers`' own, so what it gives is the truth for everything made from it. One
thread and fixed seeds: on one machine the same weights each time.
"""

import random
import time

import torch
from torch.nn import functional as F

from . import sentence_texts

LONGEST = 64
STEPS = 500
PEAK_RATE = 5e-3
TEMPERATURE = 0.1


def network(vocabulary):
    """The untrained network."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(22)
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=LONGEST,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.08,
        pad_token_id=0,
    )
    return BertModel(config, add_pooling_layer=False)


def vectors(model, tokenizer, texts):
    """A vector of unit length for each text: the mean of its tokens' states."""
    rows = tokenizer(texts, padding=True, truncation=True, max_length=LONGEST, return_tensors="pt")
    states = model(**rows).last_hidden_state
    weights = rows["attention_mask"].unsqueeze(-1).float()
    return F.normalize((states * weights).sum(1) / weights.sum(1), dim=1)


def trained(tokenizer, report=print):
    """The network after training: of two sentences of every topic each finds the other."""
    model = network(len(tokenizer)).train()
    chance = random.Random(23)
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_RATE)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, PEAK_RATE, STEPS, pct_start=0.1)
    start = time.monotonic()
    for step in range(STEPS):
        first, second = map(list, zip(*sentence_texts.pairs(chance)))
        sides = vectors(model, tokenizer, first + second)
        scores = sides[: len(first)] @ sides[len(first) :].T / TEMPERATURE
        mates = torch.arange(len(first))
        loss = (F.cross_entropy(scores, mates) + F.cross_entropy(scores.T, mates)) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rate.step()
        if step % 100 == 99:
            report(f"step {step + 1}: loss {loss.item():.4f}, {time.monotonic() - start:.0f} s")
    return model.eval().requires_grad_(False)


@torch.no_grad()
def wrong_neighbours(model, tokenizer):
    """Sentences whose nearest other sentence is of another topic."""
    known = [(text, topic) for topic, texts in sentence_texts.TOPICS.items() for text in texts]
    asked = known + list(sentence_texts.HELD_OUT.items())
    places = vectors(model, tokenizer, [text for text, _ in known])
    wrong = []
    for text, topic in asked:
        near = places @ vectors(model, tokenizer, [text])[0]
        if (text, topic) in known:
            near[known.index((text, topic))] = -1
        best = known[int(near.argmax())]
        if best[1] != topic:
            wrong.append((text, best[0]))
    return wrong
