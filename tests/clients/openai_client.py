#!/usr/bin/env python3
"""The official `openai` Python client against a gateway; only its base_url and key are configured.

    openai_client.py --base-url http://127.0.0.1:8080/api/adapters/compat --key pk_… \
        --chat local/chat --embeddings local/embed [--no-completions] [--long "Count to a million."]

Every check prints `ok` or its failure; the exit code is 1 if one fails. `--long` is a message whose answer
takes long enough to cancel its stream halfway.
"""

import argparse
import asyncio
import base64
import json
import struct
import sys
import time
from pathlib import Path

import openai

QUESTION = [
    {"role": "system", "content": "Answer in few words."},
    {"role": "user", "content": "What stands in the garden? äöü €"},
]
GREEDY = {"temperature": 0, "seed": 7, "max_tokens": 16}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--key", required=True)
    parser.add_argument("--chat", help="id of a chat model")
    parser.add_argument("--embeddings", help="id of an embeddings model")
    parser.add_argument("--speech", help="id of a model that transcribes")
    parser.add_argument("--recording", type=Path, help="a recording for it")
    parser.add_argument("--said", help="the words of the recording")
    parser.add_argument("--speaker", help="id of a model that speaks")
    parser.add_argument("--painter", help="id of a model that makes pictures")
    parser.add_argument("--no-completions", action="store_true")
    parser.add_argument("--no-seed", action="store_true", help="answers differ from time to time")
    parser.add_argument("--long", help="a message with a long answer")
    return parser.parse_args()


class Checks:
    """Checks of one client; each is a method that raises if something is wrong."""

    def __init__(self, given):
        self.given = given
        self.client = openai.OpenAI(base_url=given.base_url, api_key=given.key, timeout=120)

    def chat(self):
        answer = self.ask()
        assert answer.object == "chat.completion", answer
        assert answer.id and answer.created > 0, answer
        (choice,) = answer.choices
        assert choice.index == 0 and choice.message.role == "assistant", choice
        assert choice.message.content, choice
        assert choice.finish_reason in ("stop", "length"), choice
        check_usage(answer.usage)

    def chat_as_events(self):
        whole = self.ask()
        chunks = list(self.ask(stream=True, stream_options={"include_usage": True}))
        assert all(chunk.object == "chat.completion.chunk" for chunk in chunks), chunks
        assert len({chunk.id for chunk in chunks}) == 1, "chunks of one answer have one id"
        *chunks, last = chunks
        assert last.choices == [] and last.usage, "the last chunk has the usage"
        check_usage(last.usage)
        deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
        assert deltas[0].role == "assistant", deltas[0]
        assert len(deltas) > 2, "it comes in pieces"
        text = "".join(delta.content or "" for delta in deltas)
        if not self.given.no_seed:
            assert text == whole.choices[0].message.content, (text, whole)
        reasons = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
        assert reasons[-1] in ("stop", "length") and not any(reasons[:-1]), reasons

    def chat_without_usage(self):
        chunks = list(self.ask(stream=True))
        assert chunks and all(chunk.usage is None for chunk in chunks), chunks

    def chat_with_typed_parts(self):
        content = [{"type": "text", "text": "What stands in the garden?"}]
        answer = self.ask(messages=[{"role": "user", "content": content}])
        assert answer.choices[0].message.content, answer

    def chat_asynchronously(self):
        async def ask():
            given = self.given
            async with openai.AsyncOpenAI(base_url=given.base_url, api_key=given.key) as client:
                create = client.chat.completions.create
                one = create(model=given.chat, messages=QUESTION, **GREEDY)
                events = await create(model=given.chat, messages=QUESTION, stream=True, **GREEDY)
                text = [chunk.choices[0].delta.content or "" async for chunk in events]
                return await one, "".join(text)

        answer, text = asyncio.run(ask())
        assert answer.choices[0].message.content and text

    def completion(self):
        create = self.client.completions.create
        whole = create(model=self.given.chat, prompt="In the garden", **GREEDY)
        assert whole.object == "text_completion" and whole.choices[0].text, whole
        check_usage(whole.usage)
        events = create(model=self.given.chat, prompt="In the garden", stream=True, **GREEDY)
        text = "".join(event.choices[0].text for event in events if event.choices)
        if not self.given.no_seed:
            assert text == whole.choices[0].text, (text, whole)

    def batches(self):
        line = {"custom_id": "one", "method": "POST", "url": "/v1/chat/completions"}
        line["body"] = {"model": self.given.chat, "messages": QUESTION, **GREEDY}
        content = json.dumps(line).encode()
        file = self.client.files.create(file=("lines.jsonl", content), purpose="batch")
        assert file.bytes == len(content) and file.filename == "lines.jsonl", file
        assert self.client.files.content(file.id).read() == content
        batch = self.client.batches.create(
            input_file_id=file.id, endpoint=line["url"], completion_window="24h"
        )
        while batch.status in ("validating", "in_progress", "finalizing"):
            time.sleep(0.05)
            batch = self.client.batches.retrieve(batch.id)
        assert batch.status == "completed" and batch.request_counts.completed == 1, batch
        answer = json.loads(self.client.files.content(batch.output_file_id).text)
        assert answer["custom_id"] == "one" and answer["response"]["status_code"] == 200, answer
        assert batch.id in [listed.id for listed in self.client.batches.list(limit=1)]
        assert self.client.files.delete(file.id).deleted
        raised(openai.NotFoundError, lambda: self.client.files.retrieve(file.id))

    def responses(self):
        create = self.client.responses.create
        asked = {"model": self.given.chat, "instructions": "Answer in few words.", "temperature": 0}
        whole = create(input="What stands in the garden?", max_output_tokens=16, **asked)
        assert whole.object == "response" and whole.status in ("completed", "incomplete"), whole
        assert whole.output_text and whole.usage.output_tokens > 0, whole
        assert whole.instructions == asked["instructions"] and whole.model == self.given.chat, whole
        turns = [
            {"role": "user", "content": "What stands in the garden?"},
            *(item.model_dump(exclude_none=True) for item in whole.output),
            {"role": "user", "content": [{"type": "input_text", "text": "And what else?"}]},
        ]
        events = list(create(input=turns, stream=True, **asked))
        assert [event.sequence_number for event in events] == list(range(len(events))), events
        assert events[0].type == "response.created" and events[1].type == "response.in_progress"
        last = events[-1]
        assert last.type in ("response.completed", "response.incomplete"), last
        text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        assert text and text == last.response.output_text, (text, last)
        with self.client.responses.stream(input="Hello", **asked) as stream:
            for _ in stream:
                pass
            assert stream.get_final_response().output_text
        error = raised(
            openai.BadRequestError, lambda: create(input="x", previous_response_id="resp_1", **asked)
        )
        assert error.param == "previous_response_id", error

    def embeddings(self):
        texts = ["a cat", "a dog on the lawn", ""]
        create = self.client.embeddings.create
        # The client requests base64 by default and decodes it.
        decoded = create(model=self.given.embeddings, input=texts)
        floats = create(model=self.given.embeddings, input=texts, encoding_format="float")
        coded = create(model=self.given.embeddings, input=texts, encoding_format="base64")
        assert [one.index for one in decoded.data] == [0, 1, 2], decoded
        for one, same, packed in zip(decoded.data, floats.data, coded.data, strict=True):
            assert one.object == "embedding" and len(one.embedding) > 1, one
            raw = base64.b64decode(packed.embedding)
            unpacked = struct.unpack(f"<{len(raw) // 4}f", raw)
            for a, b, c in zip(one.embedding, same.embedding, unpacked, strict=True):
                assert abs(a - b) < 1e-6 and abs(a - c) < 1e-6, (a, b, c)
        assert decoded.usage.prompt_tokens > 0, decoded.usage
        alone = create(model=self.given.embeddings, input="a cat")
        same = zip(alone.data[0].embedding, decoded.data[0].embedding, strict=True)
        assert all(abs(a - b) < 1e-4 for a, b in same), "a text alone is as among others"

    def models(self):
        ids = [model.id for model in self.client.models.list()]
        for wanted in filter(None, [self.given.chat, self.given.embeddings, self.given.speech, self.given.speaker, self.given.painter]):
            assert wanted in ids, ids
            model = self.client.models.retrieve(wanted)
            assert (model.id, model.object) == (wanted, "model"), model
            assert model.owned_by == wanted.split("/")[0] and model.created > 0, model

    def transcription(self):
        heard = self.hear()
        assert heard.text == self.given.said, heard
        assert self.hear(response_format="text") == self.given.said + "\n"
        assert self.hear(response_format="srt").startswith("1\n00:00:00,000 --> ")
        assert self.hear(response_format="vtt").startswith("WEBVTT\n\n00:00:00.000 --> ")
        whole = self.hear(
            response_format="verbose_json", language="en", temperature=0, timestamp_granularities=["word", "segment"]
        )
        assert whole.text == self.given.said and whole.language == "en", whole
        assert " ".join(word.word for word in whole.words) == self.given.said, whole.words
        assert whole.words[0].start == 0 and whole.words[-1].end <= whole.duration, whole.words
        first = whole.segments[0]
        assert (first.id, first.start) == (0, 0) and first.avg_logprob < 0 and first.tokens, first

    def speech(self):
        starts = {"wav": b"RIFF", "flac": b"fLaC", "opus": b"OggS", "pcm": b""}
        for format, start in starts.items():
            sound = self.speak(response_format=format).read()
            assert sound.startswith(start) and len(sound) > 20, (format, sound[:20])
        with self.client.audio.speech.with_streaming_response.create(
            model=self.given.speaker, voice="anna", input="Hello world.", response_format="wav"
        ) as streamed:
            assert b"".join(streamed.iter_bytes()) == self.speak(response_format="wav").read()

    def wrong_speech(self):
        for options, field in [
            ({"response_format": "mp3"}, "response_format"),
            ({"voice": "alloy"}, "voice"),
            ({"speed": 9}, "speed"),
            ({"input": ""}, "text"),
        ]:
            error = raised(openai.BadRequestError, lambda options=options: self.speak(**options))
            assert field in str(error), error

    def pictures(self):
        made = self.client.images.generate(model=self.given.painter, prompt="a red house", n=2, size="32x32")
        assert len(made.data) == 2, made
        pictures = [base64.b64decode(it.b64_json) for it in made.data]
        assert all(picture.startswith(b"\x89PNG") for picture in pictures)
        assert pictures[0] != pictures[1]
        further = {"seed": 3, "num_inference_steps": 2}
        same = [
            self.client.images.generate(model=self.given.painter, prompt="a house", extra_body=further).data[0].b64_json
            for _ in range(2)
        ]
        assert same[0] == same[1]

    def wrong_pictures(self):
        make = self.client.images.generate
        for options in ({"n": 11}, {"size": "512x512"}, {"response_format": "url"}):
            raised(openai.BadRequestError, lambda: make(model=self.given.painter, prompt="a house", **options))

    def speak(self, **options):
        asked = {"model": self.given.speaker, "voice": "anna", "input": "Hello world.", **options}
        return self.client.audio.speech.create(**asked)

    def hear(self, **options):
        with self.given.recording.open("rb") as file:
            return self.client.audio.transcriptions.create(model=self.given.speech, file=file, **options)

    def wrong_sounds(self):
        for options, field in [
            ({"language": "xx"}, "language"),
            ({"response_format": "diarized_json"}, "response_format"),
            ({"temperature": 2}, "temperature"),
        ]:
            error = raised(openai.BadRequestError, lambda options=options: self.hear(**options))
            assert field in str(error), error
        translate = self.client.audio.translations.create
        error = raised(
            openai.BadRequestError, lambda: translate(model=self.given.speech, file=self.given.recording)
        )
        assert "English" in str(error), error

    def wrong_key(self):
        wrong = openai.OpenAI(base_url=self.given.base_url, api_key="pk_wrong")
        for call in self.calls(wrong):
            error = raised(openai.AuthenticationError, call)
            assert error.status_code == 401 and error.code, error
            assert error.type == "authentication_error", error
        raised(openai.AuthenticationError, lambda: list(wrong.models.list()))

    def unknown_model(self):
        unknown = f"{(self.given.chat or self.given.embeddings).split('/')[0]}/no-such-model"
        for call in self.calls(self.client, unknown):
            error = raised(openai.NotFoundError, call)
            assert error.param == "model" and "no-such-model" in error.message, error
        raised(openai.NotFoundError, lambda: self.client.models.retrieve(unknown))
        raised(openai.NotFoundError, lambda: self.ask(model="gpt-4o", stream=True))

    def wrong_field(self):
        error = raised(openai.BadRequestError, lambda: self.ask(messages="hello"))
        assert error.param == "messages" and error.code, error
        assert error.type == "invalid_request_error", error

    def cancelled_stream(self):
        messages = [{"role": "user", "content": self.given.long}]
        for _ in range(3):
            started = time.monotonic()
            create = self.client.chat.completions.create
            stream = create(model=self.given.chat, messages=messages, stream=True)
            first = next(iter(stream))
            assert first.object == "chat.completion.chunk", first
            stream.close()
            assert time.monotonic() - started < 60, "it was waited for"
        # Another question is answered meanwhile.
        assert self.ask().choices[0].message.content

    def ask(self, **more):
        asked = {"model": self.given.chat, "messages": QUESTION, **GREEDY, **more}
        return self.client.chat.completions.create(**asked)

    def calls(self, client, model=None):
        given = self.given
        if given.chat:
            create = client.chat.completions.create
            for stream in False, True:
                yield lambda stream=stream: create(
                    model=model or given.chat, messages=QUESTION, stream=stream
                )
            if not given.no_completions:
                yield lambda: client.completions.create(model=model or given.chat, prompt="x")
        if given.embeddings:
            yield lambda: client.embeddings.create(model=model or given.embeddings, input="x")


def check_usage(usage):
    assert usage.prompt_tokens > 0 and usage.completion_tokens > 0, usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens, usage


def raised(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__} was raised")


def main():
    given = arguments()
    checks = Checks(given)
    names = ["models", "wrong_key"]
    if given.chat or given.embeddings:
        names.append("unknown_model")
    if given.chat:
        names += ["chat", "chat_as_events", "chat_without_usage", "chat_with_typed_parts"]
        names += ["chat_asynchronously", "wrong_field"]
        names += [] if given.no_completions else ["completion"]
        # They are converted to chats, so there are none in direct mode.
        names += [] if "-direct" in given.base_url else ["responses", "batches"]
        names += ["cancelled_stream"] if given.long else []
    if given.embeddings:
        names.append("embeddings")
    if given.speech:
        names += ["transcription", "wrong_sounds"]
    if given.speaker:
        names += ["speech", "wrong_speech"]
    if given.painter:
        names += ["pictures", "wrong_pictures"]
    failed = 0
    for name in names:
        try:
            getattr(checks, name)()
            print(f"ok {name}")
        except Exception as error:  # whatever a client may raise
            failed += 1
            print(f"FAILED {name}: {type(error).__name__}: {error}")
    print(f"{len(names) - failed} of {len(names)} checks passed, openai {openai.__version__}")
    return 1 if failed or not names else 0


if __name__ == "__main__":
    sys.exit(main())
