"""Trains lookout: a Llama that answers questions about shapes in pictures, and the network that
turns pictures into rows of embeddings.

A conversation is a list of turns; a turn is a question, perhaps with a picture, and its answer.
"""

import base64
import json
import random

import torch
from torch.nn import functional as F

from . import networks, scenes, text_tokenizers
from .chat_training import IGNORED, WIDTH, filled, llama
from .scene_training import FOUND, expect, fresh, train

MARK = "<image>"
LONGEST = 256
SIZE, ROWS = 64, 16
STEPS, BATCH = 8000, 24
COUNTS = ("no shapes", "one shape", "two shapes")
QUESTIONS = {
    "what": ("What is in the picture?", "What do you see?", "Describe the picture."),
    "colour": ("Which colour is it?", "What colours are there?", "Which colour?"),
    "shape": ("Which shape is it?", "What shapes are there?", "Which shape?"),
    "count": ("How many shapes are there?", "How many?", "Count the shapes."),
}
HELLO = ("Hello!", "Hello! Show me a picture of shapes.")
BLIND = "I see no picture."
TEMPLATE = """\
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.content is string %}
        {{- message.content }}
    {%- else %}
        {%- for part in message.content %}
            {{- '<image>' if part.type == 'image' else part.text }}
        {%- endfor %}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""


def answer(kind, found):
    """What the model says about a picture."""
    if found is None:
        return BLIND
    if kind == "count":
        return COUNTS[len(found)].capitalize() + "."
    words = {
        "what": [f"a {colour} {shape}" for colour, shape in found],
        "colour": [colour for colour, _ in found],
        "shape": [shape for _, shape in found],
    }[kind]
    return " and ".join(words).capitalize() + "."


def conversation(chance):
    """Turns: the picture, or none, the question, and the answer."""
    turns, found = [], None
    for _ in range(chance.choice((1, 1, 2, 3))):
        picture = None
        if chance.random() < (0.9 if found is None else 0.4):
            picture, found = scenes.named_shapes(SIZE, FOUND)
        kind = chance.choice(list(QUESTIONS))
        question, reply = chance.choice(QUESTIONS[kind]), answer(kind, found)
        if picture is None and chance.random() < 0.15:
            question, reply = HELLO
        turns.append((picture, question, reply))
    return turns


def corpus():
    """All texts, for the tokenizer."""
    chance = random.Random(2)
    for _ in range(300):
        yield from ("user\n", "assistant\n", *HELLO)
        for kind, questions in QUESTIONS.items():
            found = [
                (chance.choice(list(scenes.COLOURS)), chance.choice(scenes.SHAPES[:FOUND]))
                for _ in range(chance.choice((1, 2)))
            ]
            yield from questions
            yield answer(kind, found)
        yield BLIND


def tokenizer():
    """A tokenizer of whole words and signs."""
    control = [*text_tokenizers.CHAT_CONTROL, MARK]
    described = json.loads(text_tokenizers.trained(corpus(), 330, control).to_str())
    for token in described["added_tokens"]:
        token["special"] = True
    return described


def tokenizer_config():
    """The chat side of the tokenizer; the template is a file of its own."""
    return text_tokenizers.chat_tokenizer_config(LONGEST) | {"image_token": MARK}


def network(vocabulary):
    """The untrained decoder."""
    return llama(vocabulary, 48, LONGEST)


def encoded(known, turns):
    """Token ids, in which a mark stands for each row of a picture, and what is to be learnt."""
    mark, ids, labels = known.convert_tokens_to_ids(MARK), [], []
    for picture, question, reply in turns:
        shown = MARK if picture is not None else ""
        before = f"<|im_start|>user\n{shown}{question}<|im_end|>\n<|im_start|>assistant\n"
        for id in known.encode(before, add_special_tokens=False):
            ids += [id] * (ROWS if id == mark else 1)
        labels += [IGNORED] * (len(ids) - len(labels))
        said = known.encode(reply + "<|im_end|>", add_special_tokens=False)
        ids, labels = ids + said, labels + said
        between = known.encode("\n", add_special_tokens=False)
        ids, labels = ids + between, labels + [IGNORED] * len(between)
    return ids, labels


def embedded(model, looker, mark, ids, pictures):
    """Embeddings of tokens, in which pictures have taken their places."""
    x = model.model.embed_tokens(ids)
    if not pictures:
        return x
    seen = looker(torch.stack(pictures) * 255)
    return x.masked_scatter((ids == mark)[..., None], seen)


def trained(known):
    """The decoder and the network of pictures, which know the shapes."""
    chance, mark = random.Random(22), known.convert_tokens_to_ids(MARK)
    whole = fresh(23, lambda: torch.nn.ModuleList([network(len(known)), networks.Looker(WIDTH)]))
    model, looker = whole

    def logits_of(talks):
        ids, labels = filled([encoded(known, turns) for turns in talks])
        pictures = [turn[0] for turns in talks for turn in turns if turn[0] is not None]
        return model(inputs_embeds=embedded(model, looker, mark, ids, pictures)).logits, labels

    def loss():
        logits, labels = logits_of([conversation(chance) for _ in range(BATCH)])
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())

    train("pictures in conversations", whole, loss, STEPS, 6e-3)
    right = count = 0
    for _ in range(20):
        logits, labels = logits_of([conversation(chance) for _ in range(BATCH)])
        best, labels = logits[:, :-1].argmax(2), labels[:, 1:]
        for row, wanted in zip(best, labels, strict=True):
            right += bool((row == wanted)[wanted != IGNORED].all())
            count += 1
    expect("share of conversations that are right", right / count, 0.8)
    return model, looker


def example():
    """A picture of a blue star and a red circle, 160 x 120."""
    picture = torch.tensor([0.85, 0.87, 0.8])[:, None, None] * torch.ones(3, 120, 160)
    scenes.paint(picture, "star", scenes.COLOURS["blue"], 46, 62, 32, 0.1)
    scenes.paint(picture, "circle", scenes.COLOURS["red"], 116, 56, 28)
    return picture


@torch.no_grad()
def said(known, model, looker, turns):
    """What the model says to the last question of a conversation, and the number of tokens before
    and in its answer."""
    mark, end = known.convert_tokens_to_ids([MARK, "<|im_end|>"])
    picture, question, _ = turns[-1]
    ids, _ = encoded(known, [*turns[:-1], (picture, question, "")])
    # The empty answer and its end come off.
    ids = ids[: len(ids) - 1 - len(known.encode("\n", add_special_tokens=False))]
    start, pictures = len(ids), [turn[0] for turn in turns if turn[0] is not None]
    while ids[-1] != end and len(ids) < LONGEST:
        x = embedded(model, looker, mark, torch.tensor([ids]), pictures)
        ids.append(int(model(inputs_embeds=x).logits[0, -1].argmax()))
    return known.decode(ids[start:-1]), start, len(ids) - start


def truth(known, model, looker):
    """Conversations with the model's own answers, and their pictures as PNG."""
    torch.manual_seed(24)
    chance, talks, pictures = random.Random(24), [], []
    while len(talks) < 12:
        turns, shown = [], []
        for picture, question, _ in conversation(chance):
            if picture is not None:
                # As whole bytes, which PNG keeps.
                picture = (picture * 255).round() / 255
                pictures.append(picture)
            shown.append(len(pictures) - 1 if picture is not None else None)
            answer, before, length = said(known, model, looker, [*turns, (picture, question, "")])
            turns.append((picture, question, answer))
        asked = [
            {"picture": place, "question": question, "answer": answer}
            for place, (_, question, answer) in zip(shown, turns, strict=True)
        ]
        talks.append({"turns": asked, "prompt_tokens": before, "completion_tokens": length})
    files = [base64.b64encode(scenes.png(picture)).decode() for picture in pictures]
    return {"pictures": files, "conversations": talks}
