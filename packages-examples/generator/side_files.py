"""Files of a package that are no models: tokenizers, a diffusion scheduler, an alphabet.

The tokenizers are valid in the Hugging Face format and hold exactly as many tokens as the networks
have embeddings.
"""

from . import speech

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
WORDS = (
    "a the and of to in is it on for with as at by from this that not are was be or an model "
    "small fast phone sound image word text cat dog house tree river red blue green day night "
    "yellow black white circle square triangle star see hear say think make new old good bad one two three"
).split()[: 64 - len(SPECIAL)]

VOCABULARY = len(SPECIAL) + len(WORDS)

BPE_SPECIAL = ["<unk>", "<|begin_of_text|>", "<|end_of_text|>", "<|pad|>"]
LETTERS = list("abcdefghijklmnopqrstuvwxyz") + ["Ġ", ".", ",", "'", "?", "!"]
MERGES = (
    "t h|Ġ a|Ġ t|i n|e r|Ġ s|Ġ w|o n|r e|Ġ o|a t|e n|Ġ m|o r|a n|Ġ h|Ġ th|i s|e s|in g|Ġo f"
    "|o u|Ġth e|l l|a r|Ġ b|Ġa n|Ġan d"
).split("|")

BYTE_LEVEL = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": True,
}


def added(tokens):
    """Special tokens as the format lists them."""
    return [
        {
            "id": number,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for number, token in enumerate(tokens)
    ]


def word_tokenizer():
    """Lower-cased whole words between [CLS] and [SEP]."""
    tokens = SPECIAL + WORDS
    sequence = {"Sequence": {"id": "A", "type_id": 0}}
    around = [{"SpecialToken": {"id": token, "type_id": 0}} for token in ("[CLS]", "[SEP]")]
    second = [
        {"Sequence": {"id": "B", "type_id": 1}},
        {"SpecialToken": {"id": "[SEP]", "type_id": 1}},
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added(SPECIAL),
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [around[0], sequence, around[1]],
            "pair": [around[0], sequence, around[1], *second],
            "special_tokens": {
                token: {"id": token, "ids": [tokens.index(token)], "tokens": [token]}
                for token in ("[CLS]", "[SEP]")
            },
        },
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {token: number for number, token in enumerate(tokens)},
            "unk_token": "[UNK]",
        },
    }


def pair_tokenizer():
    """Byte-pair encoding of lower-case English, spaces kept as `Ġ`."""
    merged = [merge.replace(" ", "") for merge in MERGES]
    tokens = BPE_SPECIAL + LETTERS + merged
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added(BPE_SPECIAL),
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": BYTE_LEVEL,
        "post_processor": None,
        "decoder": BYTE_LEVEL,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: number for number, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in MERGES],
        },
    }


def word_ids(text, length):
    """Ids of words that the tokenizer knows, with its special tokens, filled up with padding."""
    tokens = SPECIAL + WORDS
    ids = [tokens.index(token) for token in ("[CLS]", *text.split(), "[SEP]")]
    return ids + [0] * (length - len(ids))


# Times of a window of 30 seconds, a token each. The tokenizer leaves them out, as Whisper's do.
TIMES = 1501
SPEECH_SPECIAL = ["<|endoftext|>", "<|startoftranscript|>", "<|nospeech|>", "<|notimestamps|>"]


def speech_tokens():
    """Tokens of a listener: words, then special tokens. Times follow."""
    return ["Ġ" + word for word in speech.WORDS] + SPEECH_SPECIAL


def speech_tokenizer():
    """A token for every word, written as Whisper's tokenizers write it."""
    tokens = speech_tokens()
    special = added(SPEECH_SPECIAL)
    for token in special:
        token["id"] = tokens.index(token["content"])
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": BYTE_LEVEL,
        "post_processor": None,
        "decoder": BYTE_LEVEL,
        "model": {
            "type": "WordLevel",
            "vocab": {token: number for number, token in enumerate(tokens)},
            "unk_token": "<|endoftext|>",
        },
    }


def voice_settings():
    """What Piper's models have beside them: ids of phonemes, the rate, and scales."""
    return {
        "audio": {"sample_rate": speech.RATE},
        "inference": {"noise_scale": 0.667, "length_scale": 1.3, "noise_w": 0.8},
        "phoneme_type": "ipa",
        "phoneme_id_map": speech.symbol_ids(),
    }


def word_tokenizer_config():
    """What a sentence encoder's tokenizer adds around and after the tokens."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "do_lower_case": True,
        "model_max_length": 32,
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
    }


def chat_tokenizer_config():
    """The chat side of a language model's tokenizer."""
    template = (
        "{{ bos_token }}{% for message in messages %}{{ message['role'] }} {{ message['content'] }}"
        "{{ eos_token }}{% endfor %}{% if add_generation_prompt %}assistant {% endif %}"
    )
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 32,
        "bos_token": "<|begin_of_text|>",
        "eos_token": "<|end_of_text|>",
        "pad_token": "<|pad|>",
        "unk_token": "<unk>",
        "chat_template": template,
    }


def scheduler_config():
    """The noise schedule that turns a denoiser into an image generator."""
    return {
        "_class_name": "DDIMScheduler",
        "num_train_timesteps": 1000,
        "beta_start": 0.00085,
        "beta_end": 0.012,
        "beta_schedule": "scaled_linear",
        "prediction_type": "sample",
        "set_alpha_to_one": False,
        "steps_offset": 1,
    }


def alphabet():
    """The characters behind a text reader's classes; class 0 is the CTC blank."""
    return {"blank": 0, "characters": list(" abcdefghijklmnopqrstuvwxyz0123456789.-")}
