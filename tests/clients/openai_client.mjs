#!/usr/bin/env node
// The official `openai` npm client against a gateway; only its baseURL and key are configured.
//
//   openai_client.mjs --modules DIR --base-url http://127.0.0.1:8080/api/adapters/compat --key pk_… \
//       --chat local/chat --embeddings local/embed [--no-completions] [--long "Count to a million."]
//
// `--modules` is a directory that contains `node_modules`. Every check prints `ok` or its failure; the exit
// code is 1 if one fails. `--long` is a message whose answer takes long enough to cancel its stream
// halfway.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";

const { values: given } = parseArgs({
  options: {
    modules: { type: "string", default: "." },
    "base-url": { type: "string" },
    key: { type: "string" },
    chat: { type: "string" },
    embeddings: { type: "string" },
    "no-completions": { type: "boolean", default: false },
    "no-seed": { type: "boolean", default: false },
    long: { type: "string" },
  },
});
const require = createRequire(join(resolve(given.modules), "package.json"));
const OpenAI = require("openai");

const QUESTION = [
  { role: "system", content: "Answer in few words." },
  { role: "user", content: "What stands in the garden? äöü €" },
];
const GREEDY = { temperature: 0, seed: 7, max_tokens: 16 };

const client = new OpenAI({ baseURL: given["base-url"], apiKey: given.key, timeout: 120_000 });

const ask = (more = {}, options = {}) =>
  client.chat.completions.create(
    { model: given.chat, messages: QUESTION, ...GREEDY, ...more },
    options,
  );

async function collect(events) {
  const all = [];
  for await (const event of events) all.push(event);
  return all;
}

function checkUsage(usage) {
  assert(usage.prompt_tokens > 0 && usage.completion_tokens > 0, JSON.stringify(usage));
  assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
}

async function raised(kind, call) {
  try {
    await call();
  } catch (error) {
    assert(error instanceof kind, `${error?.constructor?.name}: ${error?.message}`);
    return error;
  }
  throw new assert.AssertionError({ message: `no ${kind.name} was thrown` });
}

function calls(of, model) {
  const all = [];
  if (given.chat) {
    const chat = model ?? given.chat;
    for (const stream of [false, true])
      all.push(() => of.chat.completions.create({ model: chat, messages: QUESTION, stream }));
    if (!given["no-completions"])
      all.push(() => of.completions.create({ model: chat, prompt: "x" }));
  }
  if (given.embeddings)
    all.push(() => of.embeddings.create({ model: model ?? given.embeddings, input: "x" }));
  return all;
}

const checks = {
  async models() {
    const ids = (await collect(client.models.list())).map((model) => model.id);
    for (const wanted of [given.chat, given.embeddings].filter(Boolean)) {
      assert(ids.includes(wanted), ids.join(" "));
      const model = await client.models.retrieve(wanted);
      assert.equal(model.id, wanted);
      assert.equal(model.object, "model");
      assert.equal(model.owned_by, wanted.split("/")[0]);
    }
  },

  async wrong_key() {
    const wrong = new OpenAI({ baseURL: given["base-url"], apiKey: "pk_wrong" });
    for (const call of calls(wrong)) {
      const error = await raised(OpenAI.AuthenticationError, call);
      assert.equal(error.status, 401);
      assert.equal(error.type, "authentication_error");
      assert(error.code);
    }
    await raised(OpenAI.AuthenticationError, () => collect(wrong.models.list()));
  },

  async unknown_model() {
    const unknown = `${(given.chat ?? given.embeddings).split("/")[0]}/no-such-model`;
    for (const call of calls(client, unknown)) {
      const error = await raised(OpenAI.NotFoundError, call);
      assert.equal(error.param, "model");
      assert(error.message.includes("no-such-model"), error.message);
    }
    await raised(OpenAI.NotFoundError, () => client.models.retrieve(unknown));
  },
};

const chatChecks = {
  async chat() {
    const answer = await ask();
    assert.equal(answer.object, "chat.completion");
    assert.equal(answer.choices.length, 1);
    assert.equal(answer.choices[0].message.role, "assistant");
    assert(answer.choices[0].message.content);
    assert(["stop", "length"].includes(answer.choices[0].finish_reason));
    checkUsage(answer.usage);
  },

  async chat_as_events() {
    const whole = await ask();
    const events = await ask({ stream: true, stream_options: { include_usage: true } });
    const chunks = await collect(events);
    const last = chunks.pop();
    assert.deepEqual(last.choices, []);
    checkUsage(last.usage);
    assert(chunks.length > 2, "it comes in pieces");
    assert(chunks.every((chunk) => chunk.object === "chat.completion.chunk"));
    const text = chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join("");
    if (!given["no-seed"]) assert.equal(text, whole.choices[0].message.content);
    assert(["stop", "length"].includes(chunks.at(-1).choices[0].finish_reason));
  },

  async chat_by_the_stream_helper() {
    const asked = { model: given.chat, messages: QUESTION, ...GREEDY };
    const runner = client.chat.completions.stream(asked);
    const answer = await runner.finalChatCompletion();
    assert(answer.choices[0].message.content);
  },

  async wrong_field() {
    const error = await raised(OpenAI.BadRequestError, () => ask({ messages: "hello" }));
    assert.equal(error.param, "messages");
    assert.equal(error.type, "invalid_request_error");
  },
};

// They are converted to chats, so there are none in direct mode.
const responseChecks = {
  async responses() {
    const asked = { model: given.chat, instructions: "Answer in few words.", temperature: 0 };
    const whole = await client.responses.create({ ...asked, input: "What stands in the garden?" });
    assert.equal(whole.object, "response");
    assert(whole.output_text);
    assert(whole.usage.output_tokens > 0);
    const input = [
      { role: "user", content: "What stands in the garden?" },
      ...whole.output,
      { role: "user", content: "And what else?" },
    ];
    const events = await collect(await client.responses.create({ ...asked, input, stream: true }));
    assert.equal(events[0].type, "response.created");
    assert(["response.completed", "response.incomplete"].includes(events.at(-1).type));
    const deltas = events.filter((event) => event.type === "response.output_text.delta");
    const item = events.at(-1).response.output.find((one) => one.type === "message");
    assert.equal(deltas.map((event) => event.delta).join(""), item.content[0].text);
    const final = await client.responses.stream({ ...asked, input: "Hello" }).finalResponse();
    assert(final.output_text);
  },
};

const completionChecks = {
  async completion() {
    const asked = { model: given.chat, prompt: "In the garden", ...GREEDY };
    const whole = await client.completions.create(asked);
    assert.equal(whole.object, "text_completion");
    assert(whole.choices[0].text);
    checkUsage(whole.usage);
    const events = await collect(await client.completions.create({ ...asked, stream: true }));
    const text = events.map((event) => event.choices[0]?.text ?? "").join("");
    if (!given["no-seed"]) assert.equal(text, whole.choices[0].text);
  },
};

const longChecks = {
  async cancelled_stream() {
    const messages = [{ role: "user", content: given.long }];
    for (let time = 0; time < 3; time += 1) {
      const events = await client.chat.completions.create({
        model: given.chat,
        messages,
        stream: true,
      });
      for await (const event of events) {
        assert.equal(event.object, "chat.completion.chunk");
        break;
      }
      events.controller.abort();
    }
    // Another question is answered meanwhile.
    assert((await ask()).choices[0].message.content);
  },
};

const embeddingChecks = {
  async embeddings() {
    const asked = { model: given.embeddings, input: ["a cat", "a dog on the lawn", ""] };
    // The client requests base64 by default and decodes it.
    const decoded = await client.embeddings.create(asked);
    const floats = await client.embeddings.create({ ...asked, encoding_format: "float" });
    const coded = await client.embeddings.create({ ...asked, encoding_format: "base64" });
    assert.deepEqual(
      decoded.data.map((one) => one.index),
      [0, 1, 2],
    );
    decoded.data.forEach((one, at) => {
      const raw = Buffer.from(coded.data[at].embedding, "base64");
      assert.equal(raw.length, 4 * one.embedding.length);
      one.embedding.forEach((value, place) => {
        assert(Math.abs(value - floats.data[at].embedding[place]) < 1e-6);
        assert(Math.abs(value - raw.readFloatLE(4 * place)) < 1e-6);
      });
    });
    assert(decoded.usage.prompt_tokens > 0);
  },
};

const all = Object.entries({
  ...checks,
  ...(given.chat ? chatChecks : {}),
  ...(given.chat && !given["base-url"].includes("-direct") ? responseChecks : {}),
  ...(given.chat && !given["no-completions"] ? completionChecks : {}),
  ...(given.chat && given.long ? longChecks : {}),
  ...(given.embeddings ? embeddingChecks : {}),
});
let failed = 0;
for (const [name, check] of all) {
  try {
    await check();
    console.log(`ok ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED ${name}: ${error?.constructor?.name}: ${error?.message}`);
  }
}
const { VERSION } = require("openai/version");
console.log(`${all.length - failed} of ${all.length} checks passed, openai ${VERSION}`);
process.exit(failed ? 1 : 0);
