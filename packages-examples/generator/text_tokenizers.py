"""Byte-level BPE tokenizers, trained on an example's own texts, and the files around them.

The files are what the Hugging Face libraries read: `tokenizer.json`, `tokenizer_config.json`,
`chat_template.jinja`, `generation_config.json`.
"""

import json
import os
import re

END, START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
# Control tokens, which are not printed, and marks that belong to the text.
CHAT_CONTROL = [END, START, TURN_END]
CHAT_MARKS = [
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
]
SENTENCE_CONTROL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]

# Letters with what stands before them, digits one by one, signs, line ends, and spaces, of which
# the last goes to the word that follows.
PIECES = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s*[\r\n]+|\s+(?!\S)|\s+"

CHAT_TEMPLATE = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- '# Tools\\n\\n<tools>' }}
    {%- for tool in tools %}
        {{- '\\n' }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- '\\n</tools>\\n\\nTo call one, write:\\n<tool_call>\\n{"name": <name>, "arguments": <object>}\\n</tool_call>' }}
    {{- '<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- set content = message.content or '' %}
    {%- if message.role == 'user' %}
        {{- '<|im_start|>user\\n' + content + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {%- if '</think>' in content %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\\n' + content }}
        {%- for call in message.tool_calls or [] %}
            {%- if content or not loop.first %}
                {{- '\\n' }}
            {%- endif %}
            {%- set function = call.function if call.function else call %}
            {{- '<tool_call>\\n{"name": "' + function.name + '", "arguments": ' }}
            {%- if function.arguments is string %}
                {{- function.arguments }}
            {%- else %}
                {{- function.arguments | tojson }}
            {%- endif %}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>user\\n<tool_response>\\n' + content + '\\n</tool_response><|im_end|>\\n' }}
    {%- elif message.role != 'system' or not loop.first %}
        {{- raise_exception('Roles are system (first only), user, assistant and tool, not ' + message.role) }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""


def chat_tokenizer(texts, size):
    """A tokenizer for conversations, of `size` tokens."""
    tokenizer = trained(texts, size, CHAT_CONTROL + CHAT_MARKS)
    described = json.loads(tokenizer.to_str())
    for token in described["added_tokens"]:
        token["special"] = token["content"] in CHAT_CONTROL
    return described


def sentence_tokenizer(texts, size):
    """A tokenizer for lower-cased sentences, each between [CLS] and [SEP]."""
    from tokenizers import normalizers, processors

    normal = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    tokenizer = trained(texts, size, SENTENCE_CONTROL, normal)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, SENTENCE_CONTROL.index(name)) for name in ("[CLS]", "[SEP]")],
    )
    return json.loads(tokenizer.to_str())


def trained(texts, size, added, normalizer=None):
    """A byte-level BPE tokenizer whose first ids are the `added` tokens."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizer or normalizers.NFC()
    split = pre_tokenizers.Split(Regex(PIECES), "isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=added,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    # The trainer would make words of the added tokens that stand in texts.
    marks = re.compile("|".join(map(re.escape, added)))
    pieces = (piece for text in texts for piece in marks.split(text) if piece)
    tokenizer.train_from_iterator(pieces, trainer)
    return tokenizer


def chat_tokenizer_config(longest):
    """The chat side of the tokenizer; the template is a file of its own."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": longest,
        "bos_token": START,
        "eos_token": TURN_END,
        "pad_token": END,
        "clean_up_tokenization_spaces": False,
    }


def sentence_tokenizer_config(longest):
    """What a sentence encoder's tokenizer adds around and after the tokens."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "do_lower_case": True,
        "model_max_length": longest,
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "clean_up_tokenization_spaces": False,
    }


def generation_config():
    """How a text is ended and drawn where the caller does not say."""
    return {
        "bos_token_id": CHAT_CONTROL.index(START),
        "eos_token_id": [CHAT_CONTROL.index(TURN_END), CHAT_CONTROL.index(END)],
        "pad_token_id": CHAT_CONTROL.index(END),
        "do_sample": False,
    }
