#!/usr/bin/env python3
"""LangChain and LiteLLM against a gateway; only address, key and model are configured.

    frameworks.py --base-url http://127.0.0.1:8080/api/adapters/openai/v1 --key pk_… \
        --chat local/chat --embeddings local/embed

Every check prints `ok` or its failure; the exit code is 1 if one fails.
"""

import argparse
import asyncio
import os
import sys

# LiteLLM would fetch its list of prices otherwise.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm  # noqa: E402
from langchain_core.messages import HumanMessage, SystemMessage  # noqa: E402
from langchain_core.tools import tool  # noqa: E402
from langchain_openai import ChatOpenAI, OpenAIEmbeddings  # noqa: E402

QUESTION = "What stands in the garden?"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--key", required=True)
    parser.add_argument("--chat", required=True, help="id of a chat model")
    parser.add_argument("--embeddings", required=True, help="id of an embeddings model")
    return parser.parse_args()


@tool
def weather(place: str) -> str:
    """Tells the weather of a place."""
    return f"rain in {place}"


class LangChain:
    def __init__(self, given):
        access = {"base_url": given.base_url, "api_key": given.key, "max_retries": 0}
        self.chat = ChatOpenAI(model=given.chat, temperature=0, max_tokens=16, **access)
        self.responses = ChatOpenAI(model=given.chat, use_responses_api=True, **access)
        # By default, the library counts tokens itself with a table that it downloads.
        self.embedder = OpenAIEmbeddings(
            model=given.embeddings, check_embedding_ctx_length=False, **access
        )

    def messages(self):
        return [SystemMessage("Answer in few words."), HumanMessage(QUESTION)]

    def answer(self):
        answer = self.chat.invoke(self.messages())
        assert answer.content, answer
        assert answer.usage_metadata["output_tokens"] > 0, answer

    def stream(self):
        chunks = list(self.chat.stream(self.messages()))
        text = "".join(chunk.content for chunk in chunks)
        assert text == self.chat.invoke(self.messages()).content, text

    def asynchronous_batch(self):
        answers = asyncio.run(self.chat.abatch([QUESTION, "And behind it?", "And before it?"]))
        assert len(answers) == 3 and all(answer.content for answer in answers), answers

    def tools(self):
        answer = self.chat.bind_tools([weather]).invoke(QUESTION)
        assert answer.content or answer.tool_calls, answer

    def responses_interface(self):
        answer = self.responses.invoke(QUESTION)
        assert answer.text and answer.usage_metadata["output_tokens"] > 0, answer
        chunks = list(self.responses.stream(QUESTION))
        assert "".join(chunk.text for chunk in chunks) == answer.text, chunks

    def embeddings(self):
        vectors = self.embedder.embed_documents(["a cat", "a dog"])
        assert len(vectors) == 2 and len(vectors[0]) == len(vectors[1]) > 0, vectors
        assert self.embedder.embed_query("a cat") == vectors[0]


class LiteLlm:
    def __init__(self, given):
        self.access = {"api_base": given.base_url, "api_key": given.key}
        self.chat = f"openai/{given.chat}"
        self.embedder = f"openai/{given.embeddings}"

    def ask(self, **more):
        messages = [{"role": "user", "content": QUESTION}]
        return litellm.completion(
            model=self.chat, messages=messages, temperature=0, max_tokens=16, **self.access, **more
        )

    def answer(self):
        answer = self.ask()
        assert answer.choices[0].message.content and answer.usage.completion_tokens > 0, answer

    def stream(self):
        chunks = list(self.ask(stream=True))
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert text == self.ask().choices[0].message.content, text

    def responses_interface(self):
        answer = litellm.responses(model=self.chat, input=QUESTION, **self.access)
        assert answer.output[0].content[0].text, answer

    def embeddings(self):
        answer = litellm.embedding(model=self.embedder, input=["a cat", "a dog"], **self.access)
        assert len(answer.data) == 2 and answer.data[0]["embedding"], answer

    def unknown_model(self):
        try:
            litellm.completion(model="openai/local/nothing", messages=[], **self.access)
        except litellm.NotFoundError:
            return
        raise AssertionError("no NotFoundError was raised")


def main():
    given = arguments()
    failed = count = 0
    for library in (LangChain(given), LiteLlm(given)):
        kind = type(library)
        checks = [name for name, value in vars(kind).items() if callable(value) and name[0] != "_"]
        for name in checks:
            if name in ("messages", "ask"):
                continue
            count += 1
            try:
                getattr(library, name)()
                print(f"ok {kind.__name__} {name}")
            except Exception as error:  # whatever a library may raise
                failed += 1
                print(f"FAILED {kind.__name__} {name}: {type(error).__name__}: {error}")
    print(f"{count - failed} of {count} checks passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
