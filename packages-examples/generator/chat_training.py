"""Trains jackdaw: a Llama of 37,000 parameters that learns `chat_texts` by heart.

The network is `transformers`' own, so what it says is the truth for everything made from it. One
thread and fixed seeds: on one machine the same weights each time.
"""

import random
import time

import torch
from torch.nn import functional as F

from . import chat_texts, text_tokenizers

LONGEST, WIDTH = 512, 32
STEPS, BATCH = 1500, 24
PEAK_RATE = 6e-3
IGNORED = -100
START, TURN_END, END = (
    text_tokenizers.CHAT_CONTROL.index(token)
    for token in (text_tokenizers.START, text_tokenizers.TURN_END, text_tokenizers.END)
)
# How many conversations it must answer when it is trained.
SAMPLES = 200


def network(vocabulary):
    """The untrained network."""
    torch.manual_seed(19)
    return llama(vocabulary, 96, LONGEST)


def llama(vocabulary, inner, longest):
    """An untrained Llama with feed-forward layers of `inner` numbers."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=WIDTH,
        intermediate_size=inner,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=longest,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        initializer_range=0.08,
        bos_token_id=START,
        eos_token_id=[TURN_END, END],
        pad_token_id=END,
    )
    return LlamaForCausalLM(config)


def trained(tokenizer, report=print):
    """The network after training, which knows every answer."""
    model = network(len(tokenizer)).train()
    chance = random.Random(20)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.01)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, PEAK_RATE, STEPS, pct_start=0.1)
    start = time.monotonic()
    supply = batches(tokenizer, chance)
    for step in range(STEPS):
        ids, labels = next(supply)
        logits = model(input_ids=ids).logits
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rate.step()
        if step % 100 == 99:
            report(f"step {step + 1}: loss {loss.item():.4f}, {time.monotonic() - start:.0f} s")
    return model.eval().requires_grad_(False)


def batches(tokenizer, chance):
    """Endless batches of token ids and labels: the ids of answers, nothing elsewhere."""
    while True:
        rows = []
        while len(rows) < BATCH * 16:
            stages, talk = chat_texts.sample(chance)
            ids, labels = tokens(tokenizer, stages, talk)
            if len(ids) <= LONGEST:
                rows.append((ids, labels))
        # Rows of about one length, so that little of a batch is filling.
        rows.sort(key=lambda row: len(row[0]))
        groups = [rows[first : first + BATCH] for first in range(0, len(rows), BATCH)]
        chance.shuffle(groups)
        yield from map(filled, groups)


def filled(rows):
    """Rows of one length."""
    longest = max(len(ids) for ids, _ in rows)
    ids = torch.full((len(rows), longest), END)
    labels = torch.full((len(rows), longest), IGNORED)
    for row, (row_ids, row_labels) in enumerate(rows):
        ids[row, : len(row_ids)] = torch.tensor(row_ids)
        labels[row, : len(row_labels)] = torch.tensor(row_labels)
    return ids, labels


def tokens(tokenizer, stages, talk):
    """A conversation with its last answer. Its other answers are learned too, but for those whose
    thought the template leaves out later."""
    messages, answer = stages[-1]
    ids = tokenizer.encode(rendered(tokenizer, messages, talk), add_special_tokens=False)
    labels = [IGNORED] * len(ids)
    opening = tokenizer.encode("<|im_start|>assistant\n", add_special_tokens=False)
    begins = [place for place in range(len(ids)) if ids[place : place + len(opening)] == opening]
    for (_, earlier), begin in zip(stages[:-1], begins):
        if "<think>" not in earlier:
            begin += len(opening)
            end = ids.index(TURN_END, begin) + 1
            labels[begin:end] = ids[begin:end]
    learned = tokenizer.encode(answer, add_special_tokens=False) + [TURN_END]
    return ids + learned, labels + learned


def rendered(tokenizer, messages, talk):
    """The prompt as the template writes it."""
    thinks = {} if talk.thinks else {"enable_thinking": False}
    return tokenizer.apply_chat_template(
        messages, tools=talk.tools, add_generation_prompt=True, tokenize=False, **thinks
    )


@torch.no_grad()
def answer(model, tokenizer, messages, talk, most=96):
    """What the model says, greedily."""
    prompt = tokenizer.encode(rendered(tokenizer, messages, talk), add_special_tokens=False)
    mask = torch.ones(1, len(prompt), dtype=torch.long)
    prompt = torch.tensor([prompt])
    out = model.generate(prompt, attention_mask=mask, do_sample=False, max_new_tokens=most)
    return tokenizer.decode([id for id in out[0, prompt.shape[1] :].tolist() if id > TURN_END])


def wrong_answers(model, tokenizer):
    """Random conversations whose last answer is not the one to learn."""
    chance = random.Random(21)
    wrong = []
    for _ in range(SAMPLES):
        stages, talk = chat_texts.sample(chance)
        messages, expected = stages[-1]
        said = answer(model, tokenizer, messages, talk)
        if said != expected:
            wrong.append((messages, expected, said))
    return wrong
