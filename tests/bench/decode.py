#!/usr/bin/env python3
"""Times decoding against onnxruntime-genai: the same ONNX decoder, threads, prompt and number of tokens.

    tests/setup && python3 tests/bench/decode.py [--rounds 7] [--only 1m] [--threads 1] [--json FILE]

All decode greedily and take turns, a round each: the tool with ONNX Runtime, with its embedded engine, and the peer.
The measure is tokens per CPU second
of all processes and threads, of prefill (a prompt of 1000 tokens) and of decode (after a prompt of 16). A ratio
is the median over the rounds of the ratio of two. With ONNX Runtime both must give the same tokens; of the embedded
engine the tokens that agree before the first other one are counted. The library of ONNX Runtime is
that of the peer's environment for both.

The models are Llama's architecture with random weights, made by onnxruntime-genai's builder without a
network: 1M parameters in float32, 100M in int4. Environment, models and our program are made once, below
target/bench-decode. Needs Linux and 4 GB of free disk and memory.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / "target" / "bench-decode"
PACKAGES = [
    "onnx==1.23.2", "onnx-ir==1.1.0", "onnxruntime==1.31.1", "onnxruntime-genai==0.18.0",
    "torch==2.13.0", "transformers==5.23.0", "tokenizers",
]
# hidden size, layers, heads, heads of keys and values, inner size, vocabulary
MODELS = {"1m": ("fp32", (128, 4, 4, 2, 384, 1024)), "100m": ("int4", (768, 12, 12, 4, 2048, 16000))}
# A prompt to prefill, and tokens to decode behind a short one.
TASKS = {"prefill": (1000, 1), "decode": (16, 400)}

MAKE = """
import json, sys
from pathlib import Path
name, precision, sizes, out = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), Path(sys.argv[4])
import torch
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
hidden, layers, heads, kv, inner, vocabulary = sizes
weights = out / (name + "-weights")
torch.manual_seed(0)
config = LlamaConfig(vocab_size=vocabulary, hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers,
    num_attention_heads=heads, num_key_value_heads=kv, max_position_embeddings=2048, bos_token_id=1, eos_token_id=2,
    initializer_range=0.1)
LlamaForCausalLM(config).save_pretrained(weights)
words = Tokenizer(models.WordLevel({f"t{i}": i for i in range(vocabulary)}, unk_token="t0"))
PreTrainedTokenizerFast(tokenizer_object=words, unk_token="t0", bos_token="t1", eos_token="t2").save_pretrained(weights)
import onnxruntime_genai
sys.path.insert(0, str(Path(onnxruntime_genai.__file__).parent / "models"))
from builder import create_model, parse_extra_options
arguments = ("", str(weights), str(out / name), precision, "cpu", str(out / "cache"))
create_model(*arguments, **parse_extra_options(*arguments, []))
"""

# Runs in a process of its own: as many rounds as lines come, prints times and text of each.
PEER = """
import json, sys, time
import numpy as np, onnxruntime_genai as genai
folder, threads, prompt, tokens, rounds = sys.argv[1], *map(int, sys.argv[2:6])
config = genai.Config(folder)
config.overlay(json.dumps({"model": {"decoder": {"session_options": {"intra_op_num_threads": threads}}}}))
model = genai.Model(config)
vocabulary = json.load(open(folder + "/genai_config.json"))["model"]["vocab_size"]
ids = [(place * 7 + 3) % vocabulary for place in range(prompt)]
def now():
    return time.process_time(), time.perf_counter()
for _ in range(rounds):
    parameters = genai.GeneratorParams(model)
    # Its end of a text must not end a measurement.
    parameters.set_search_options(max_length=prompt + tokens + 1, min_length=prompt + tokens + 1, do_sample=False)
    generator = genai.Generator(model, parameters)
    start = now()
    generator.append_tokens(np.array([ids], dtype=np.int32))
    generator.generate_next_token()
    filled = now()
    for _ in range(tokens):
        generator.generate_next_token()
    done = now()
    text = [int(token) for token in generator.get_sequence(0)[prompt:]]
    print(json.dumps({"prefill": [b - a for a, b in zip(start, filled)],
        "decode": [b - a for a, b in zip(filled, done)], "text": text}), flush=True)
    del generator
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", choices=MODELS)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    python, library = environment()
    program = build()
    results = {}
    for name, (precision, sizes) in MODELS.items():
        if arguments.only in (None, name):
            folder = make(python, name, precision, sizes)
            results[name] = measure(name, folder, python, library, program, arguments)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


def environment():
    """A Python with the peer, and ONNX Runtime's library of it. PKGTOOL_BENCH_PYTHON names another one."""
    chosen = os.environ.get("PKGTOOL_BENCH_PYTHON")
    python = Path(chosen) if chosen else CACHE / "venv" / "bin" / "python"
    if not chosen and not (CACHE / "venv" / "ready").exists():
        venv.create(CACHE / "venv", with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES], check=True)
        (CACHE / "venv" / "ready").touch()
    find = "import onnxruntime, glob; print(glob.glob(onnxruntime.__path__[0] + '/capi/libonnxruntime.so*')[0])"
    told = subprocess.run([python, "-c", find], check=True, capture_output=True, text=True)
    return python, told.stdout.strip()


def build():
    command = ["cargo", "build", "--release", "-q", "--package", "pkgtool-text", "--example", "decode_steps"]
    subprocess.run([*command, "--features", "pkgtool-engine/ort"], cwd=ROOT, check=True)
    return ROOT / "target" / "release" / "examples" / "decode_steps"


def make(python, name, precision, sizes):
    folder = CACHE / name
    if not (folder / "model.onnx").exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        subprocess.run([python, "-c", MAKE, name, precision, json.dumps(sizes), CACHE], check=True)
    return folder


def run(command):
    told = subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True)
    return [json.loads(line) for line in told.stdout.splitlines() if line.startswith("{")]


def measure(name, folder, python, library, program, arguments):
    found = {}
    for task, (prompt, tokens) in TASKS.items():
        count = prompt if task == "prefill" else tokens
        sides = {"ours": [], "embedded": [], "genai": []}
        agreed = []
        # Each start is followed by a round that counts not: the first run of a model is slower.
        for _ in range(arguments.rounds):
            ours = run([program, folder / "model.onnx", library, arguments.threads, prompt, tokens, 3])
            embedded = run([program, folder / "model.onnx", "-", arguments.threads, prompt, tokens, 3])
            peer = run([python, "-c", PEER, folder, arguments.threads, prompt, tokens, 3])
            if ours[0]["text"] != peer[0]["text"]:
                sys.exit(f"{name}: the texts differ: {ours[0]['text'][:9]} and {peer[0]['text'][:9]}")
            pairs = zip(embedded[0]["text"], peer[0]["text"])
            agreed.append(next((at for at, (a, b) in enumerate(pairs) if a != b), tokens + 1))
            for side, rounds in (("ours", ours), ("embedded", embedded), ("genai", peer)):
                sides[side] += [count / best[task][0] for best in [min(rounds[1:], key=lambda it: it[task][0])]]
        def ratio_of(side):
            return statistics.median(own / peer for own, peer in zip(sides[side], sides["genai"]))

        ratio = ratio_of("ours")
        medians = {side: statistics.median(speeds) for side, speeds in sides.items()}
        found[task] = {**medians, "ratio": ratio, "embedded_ratio": ratio_of("embedded"), "agreed": min(agreed)}
        print(f"{name} {task}: {medians['ours']:.0f} tokens a CPU second, genai {medians['genai']:.0f}: {ratio:.2f}")
        print(f"  embedded {medians['embedded']:.0f}: {ratio_of('embedded'):.2f}, {min(agreed)} tokens agree")
    return found


if __name__ == "__main__":
    main()
