// The AI SDK against a gateway; only address, key and model are configured.
//
//     node ai_sdk.mjs --modules DIR --base-url http://127.0.0.1:8080/api/adapters/openai/v1 --key pk_… \
//         --chat local/chat --embeddings local/embed
//
// Every check prints `ok` or its failure; the exit code is 1 if one fails.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import path from "node:path";
import { parseArgs } from "node:util";

const text = { type: "string" };
const { values: given } = parseArgs({
  options: { modules: text, "base-url": text, key: text, chat: text, embeddings: text },
});
const require = createRequire(path.join(path.resolve(given.modules), "package.json"));
const { embedMany, generateText, jsonSchema, streamText, tool } = require("ai");
const { createOpenAI } = require("@ai-sdk/openai");

const provider = createOpenAI({ baseURL: given["base-url"], apiKey: given.key });
const prompt = "What stands in the garden?";

// The default of the provider asks for responses; `chat` asks for chat completions.
const models = { responses: provider(given.chat), chat: provider.chat(given.chat) };

const checks = {};
for (const [name, model] of Object.entries(models)) {
  checks[`${name}: generateText`] = async () => {
    const answer = await generateText({ model, prompt, system: "Answer in few words.", maxRetries: 0 });
    assert(answer.text);
    assert(answer.usage.outputTokens > 0, JSON.stringify(answer.usage));
  };
  checks[`${name}: streamText`] = async () => {
    const answer = streamText({
      model,
      prompt,
      maxRetries: 0,
      onError: ({ error }) => {
        throw error;
      },
    });
    let whole = "";
    for await (const piece of answer.textStream) whole += piece;
    assert(whole);
    assert.equal(whole, (await generateText({ model, prompt })).text);
    assert((await answer.usage).outputTokens > 0);
  };
  checks[`${name}: tools`] = async () => {
    const weather = tool({
      description: "The weather of a place",
      inputSchema: jsonSchema({ type: "object", properties: { place: { type: "string" } } }),
      execute: async ({ place }) => `rain in ${place}`,
    });
    const answer = await generateText({ model, prompt, tools: { weather }, maxRetries: 0 });
    assert(answer.text || answer.toolCalls.length > 0);
  };
  checks[`${name}: stop`] = async () => {
    const stopped = new AbortController();
    const answer = streamText({ model, prompt, abortSignal: stopped.signal, onError: () => {} });
    for await (const _piece of answer.textStream) {
      stopped.abort();
      break;
    }
  };
}
checks.embedMany = async () => {
  const model = provider.embedding(given.embeddings);
  const answer = await embedMany({ model, values: ["a cat", "a dog"], maxRetries: 0 });
  assert.equal(answer.embeddings.length, 2);
  assert(answer.embeddings[0].length > 0);
};

let failed = 0;
const all = Object.entries(checks);
for (const [name, check] of all) {
  try {
    await check();
    console.log(`ok ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED ${name}: ${error?.constructor?.name}: ${error?.message}`);
  }
}
console.log(`${all.length - failed} of ${all.length} checks passed`);
process.exit(failed ? 1 : 0);
