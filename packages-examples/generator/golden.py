"""What `transformers` and `sentence-transformers` say of the text examples: the truth for tests.

`jackdaw.json`: texts and their tokens; conversations, how the template writes them, the tokens of
the greedy answer, and the largest logarithms of probabilities for some. `kindred.json`: texts, their
tokens and vectors. `tests/fixtures/text/README.md` tells each field.
"""

import tempfile
from importlib.metadata import version

import torch

from . import chat_texts
from .chat_texts import ONE_WORD, WEATHER, assistant, user, weather_call
from .package_files import formatted, write

MOST_TOKENS = 96
# Where the best token is better than the second by less than this, another engine may take that.
LEAST_MARGIN = 0.05

TEXTS = [
    "Hello!",
    "",
    " two  spaces ",
    "line\nline\n\n\nline",
    "\ttab\r\n",
    "The capital of France is Paris.",
    "don't DON'T I'll",
    "1234567890 3.14 2026-11-22",
    "Grüße aus Köln, naïve café",
    "こんにちは世界",
    "🐦 👩‍👩‍👧 🇩🇪",
    "e\u0301 and \u00e9",
    "\u200b\u00a0\u3000",
    "a\u0000b",
    "<|im_start|>user\nHi<|im_end|>\n",
    "<think>2</think> <tool_call>{}</tool_call>",
    "<|im_start",
    '{"name": "get_weather", "arguments": {"city": "Paris"}}',
    "שלום مرحبا नमस्ते",
    "x" * 70,
]  # fmt: skip

SENTENCES = [
    "",
    "Hello",
    "A",
    "The cat, the bread, the train and the moon: " * 9,
    "GRÜSSE aus Köln",
    "🐦",
    "[SEP] in a text",
    "two\nlines",
]


class Case:
    """A conversation to be answered, and what differs from the usual."""

    def __init__(self, name, *messages, **settings):
        self.name, self.messages = name, list(messages)
        self.tools = settings.pop("tools", None)
        self.template = settings.pop("template", {})
        self.most = settings.pop("max_tokens", MOST_TOKENS)
        self.penalty = settings.pop("repetition_penalty", None)
        self.expected = settings.pop("expected", None)
        self.logprobs = settings.pop("logprobs", False)


def system(content):
    """What is said before everything."""
    return {"role": "system", "content": content}


def cases():
    """The conversations: first those with a known answer."""
    fact = {question: answer for question, (answer, _) in chat_texts.FACTS.items()}
    thought = "<think>\n2 and 3 make 5.\n</think>\n\n2 plus 3 is 5."
    paris = user("What is the weather in Paris?")
    yield Case("greeting", user("Hello!"), expected=fact["Hello!"], logprobs=True)
    for name, question in (
        ("persona", "Who are you?"),
        ("fact", "What is the capital of France?"),
        ("count", "Count to five."),
        ("japanese", "Say hello in Japanese."),
        ("german", "Say something in German."),
        ("emoji", "Draw a bird."),
        ("json", "Give me a JSON object."),
        ("lines", "Write a haiku."),
        ("story", "Tell me a story."),
    ):
        yield Case(name, user(question), expected=fact[question])
    kenya = user("What is the capital of Kenya?")
    yield Case("system", system(ONE_WORD), kenya, expected="Nairobi.", logprobs=True)
    sum_asked = user("What is 2 plus 3?")
    yield Case("thought", sum_asked, expected=thought, logprobs=True)
    plain = {"enable_thinking": False}
    yield Case("no-thought", sum_asked, template=plain, expected="2 plus 3 is 5.")
    yield Case(
        "thought-of-before",
        *(sum_asked, assistant(thought), user("What colour is the sky?")),
        expected="The sky is blue.",
    )
    yield Case("no-name", user("What is my name?"), expected=chat_texts.NO_NAME)
    ada, nice = user("My name is Ada."), assistant("Nice to meet you, Ada.")
    yield Case("name", ada, nice, user("What is my name?"), expected="Your name is Ada.")
    yield Case(
        "long",
        *(user("Hello!"), assistant(fact["Hello!"]), ada, nice),
        *(user("Tell me a story."), assistant(fact["Tell me a story."])),
        user("What is the capital of Japan?"),
        expected=fact["What is the capital of Japan?"],
    )
    yield Case("no-tool", paris, expected=chat_texts.NO_TOOL)
    call = chat_texts.weather_text("Paris")
    yield Case("tool-call", paris, tools=[WEATHER], expected=call, logprobs=True)
    result = {"role": "tool", "content": "rainy"}
    yield Case(
        "tool-result",
        *(paris, weather_call("Paris"), result),
        tools=[WEATHER],
        expected="The weather in Paris is rainy.",
    )
    yield Case(
        "tool-and-system",
        *(system(ONE_WORD), user("What is the weather in Tokyo?")),
        tools=[WEATHER],
        expected=chat_texts.weather_text("Tokyo"),
    )
    yield Case("unknown", user("Is it true?"), expected=chat_texts.UNKNOWN)
    yield Case("cut", user("Tell me a story."), max_tokens=7)
    yield Case("penalty", user("Tell me a story."), repetition_penalty=1.3, max_tokens=40)
    yield Case("penalty-mild", user("Count to five."), repetition_penalty=1.1, max_tokens=40)


def write_chat(folder, model, tokenizer):
    """The file of the decoder."""
    written = {
        "package": "packages-examples/jackdaw",
        "made_with": {name: version(name) for name in ("transformers", "tokenizers", "torch")},
        "texts": [text_case(tokenizer, text) for text in TEXTS],
        "conversations": [chat_case(model, tokenizer, case) for case in cases()],
    }
    write(folder / "jackdaw.json", (formatted(written) + "\n").encode())


def text_case(tokenizer, text):
    """A text's tokens, and the text that they make, with and without control tokens."""
    ids = tokenizer.encode(text)
    return {
        "text": text,
        "ids": ids,
        "decoded": tokenizer.decode(ids),
        "printed": tokenizer.decode(ids, skip_special_tokens=True),
    }


@torch.no_grad()
def chat_case(model, tokenizer, case):
    """A conversation and its greedy answer."""
    prompt = tokenizer.apply_chat_template(
        case.messages,
        tools=case.tools,
        add_generation_prompt=True,
        tokenize=False,
        **case.template,
    )
    ids = tokenizer.encode(prompt, add_special_tokens=False)
    answer, scores = greedy(model, ids, case)
    best = scores.topk(2).values
    margin = round(float((best[:, 0] - best[:, 1]).min()), 4)
    if margin < LEAST_MARGIN:
        raise SystemExit(f"{case.name}: two tokens are as good, by {margin}")
    ended = answer[-1] in model.generation_config.eos_token_id
    text = tokenizer.decode(answer[:-1] if ended else answer)
    if case.expected not in (None, text):
        raise SystemExit(f"{case.name}: {text!r} instead of {case.expected!r}")
    described = {"name": case.name, "messages": case.messages}
    for key, value in (
        ("tools", case.tools),
        ("template", case.template),
        ("repetition_penalty", case.penalty),
    ):
        if value:
            described[key] = value
    described |= {
        "max_tokens": case.most,
        "prompt": prompt,
        "prompt_ids": ids,
        "answer_ids": answer,
        "answer": text,
        "finish": "stop" if ended else "length",
        "margin": margin,
    }
    if case.logprobs:
        described["logprobs"] = [top(row) for row in torch.log_softmax(scores, dim=-1)]
    return described


def greedy(model, ids, case):
    """The answer's tokens, and what each was chosen by: scores after the penalty."""
    out = model.generate(
        torch.tensor([ids]),
        attention_mask=torch.ones(1, len(ids), dtype=torch.long),
        do_sample=False,
        max_new_tokens=case.most,
        repetition_penalty=case.penalty or 1.0,
        output_scores=True,
        return_dict_in_generate=True,
    )
    return out.sequences[0, len(ids) :].tolist(), torch.cat(out.scores)


def top(row):
    """The five likeliest tokens."""
    values, ids = row.topk(5)
    return [[int(id), round(float(value), 5)] for id, value in zip(ids, values)]


def write_sentences(folder, model, tokenizer, texts):
    """The file of the encoder: vectors by `sentence-transformers` itself."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Normalize, Pooling, Transformer

    with tempfile.TemporaryDirectory() as place:
        model.save_pretrained(place)
        tokenizer.save_pretrained(place)
        longest = model.config.max_position_embeddings
        states = Transformer(place, max_seq_length=longest)
        pooling = Pooling(model.config.hidden_size, pooling_mode="mean")
        truth = SentenceTransformer(modules=[states, pooling, Normalize()], device="cpu")
        texts = [*SENTENCES, *texts]
        vectors = truth.encode(texts, convert_to_numpy=True, show_progress_bar=False)
    rows = []
    for text, vector in zip(texts, vectors):
        ids = tokenizer(text, truncation=True, max_length=longest)["input_ids"]
        rows.append({"text": text, "ids": ids, "vector": [round(float(x), 7) for x in vector]})
    names = ("sentence-transformers", "transformers", "tokenizers", "torch")
    written = {
        "package": "packages-examples/kindred",
        "made_with": {name: version(name) for name in names},
        "max_tokens": longest,
        "texts": rows,
    }
    write(folder / "kindred.json", (formatted(written) + "\n").encode())
