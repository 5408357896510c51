#!/usr/bin/env python3
"""Renders every template of `styles` with every conversation by transformers, into golden.json.

    python -m venv venv && venv/bin/pip install transformers==5.23.0 jinja2==3.1.6
    venv/bin/python tests/text/templates/generate.py

What a case gives is a text, what the template itself raised, or null where Python failed. The templates
are written for these tests, in the styles of the families they are named after. The date is fixed.
"""

import datetime
import json
from pathlib import Path

import jinja2
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

HERE = Path(__file__).resolve().parent
NOON = datetime.datetime(2025, 7, 26, 12, 0, 0)


class Fixed(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOON


def main():
    chat_template_utils.datetime = Fixed
    vocabulary = {"<s>": 0, "</s>": 1, "<unk>": 2}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>")),
        bos_token="<s>",
        eos_token="</s>",
    )
    conversations = json.loads((HERE / "conversations.json").read_text())
    tools = json.loads((HERE / "tools.json").read_text())
    golden = {}
    for style in sorted((HERE / "styles").glob("*.jinja")):
        template = style.read_text()
        golden[style.stem] = {
            case["name"]: outcome(tokenizer, template, case, tools) for case in conversations
        }
    text = json.dumps(golden, ensure_ascii=False, indent=1)
    (HERE / "golden.json").write_text(text + "\n")


def outcome(tokenizer, template, case, tools):
    try:
        return tokenizer.apply_chat_template(
            case["messages"],
            tools=tools if case.get("tools") else None,
            chat_template=template,
            tokenize=False,
            add_generation_prompt=case.get("add_generation_prompt", True),
            **case.get("variables", {}),
        )
    except jinja2.exceptions.UndefinedError:
        return None
    except jinja2.exceptions.TemplateError as error:
        return {"raised": error.message}
    except (TypeError, KeyError, ValueError, AttributeError):
        return None


if __name__ == "__main__":
    main()
