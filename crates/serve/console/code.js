// The commands and programs that send the same request.

import { base, modelPath } from "./api.js";
import { CopyButton, html, Tabs, useState } from "./parts.js";

const LANGUAGES = [["curl", "curl"], ["python", "Python"], ["javascript", "JavaScript"]];

// The longest body that is shown whole.
const MAX_SHOWN = 600;

export function Code({ samples }) {
  const [language, setLanguage] = useState("curl");
  const text = samples[language];
  return html`<section class="panel" aria-label="Code for this request">
    <div class="row"><h2>The same by code</h2><${CopyButton} text=${text} /></div>
    <${Tabs} label="Language" names=${LANGUAGES} chosen=${language} choose=${setLanguage} />
    <pre tabindex="0"><code>${text}</code></pre>
  </section>`;
}

const shell = (text) => `'${text.replaceAll("'", "'\\''")}'`;

// JSON is valid Python except for these three words.
const python = (value) =>
  JSON.stringify(value, null, 4).replace(/("(?:[^"\\]|\\.)*")|\b(true|false|null)\b/g, (whole, text, word) =>
    text ?? { true: "True", false: "False", null: "None" }[word],
  );

export function code({ service, form, data, config, recipe, input }) {
  const file = ["picture", "sound"].includes(form) && (input?.name ?? (form === "picture" ? "photo.jpg" : "sound.wav"));
  const variant = config.backend !== undefined;
  if (file && recipe && !variant) return fileCode(base + modelPath(service) + "/predict", file, config);
  const key = form === "sound" ? "audio" : recipe ? "image" : "image_base64";
  const body = { data: file ? { [key]: "BASE64" } : data ?? example(form), config };
  const whole = JSON.stringify(body);
  const shown = whole.length > MAX_SHOWN && !file ? { data: "…", config } : body;
  return jsonCode(`${base}${modelPath(service)}/predict-with-config`, shown, file);
}

const example = (form) =>
  ({ speech: { text: "Good morning.", answer: "audio/wav" }, painting: { text: "a small blue star" }, texts: { texts: ["a text"] } })[form] ?? { inputs: [] };

function fileCode(url, file, config) {
  const fields = Object.entries(config).map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)]);
  return {
    curl: [`curl -H "MLP-API-KEY: $KEY"`, `-F ${shell(`file=@${file}`)}`, ...fields.map(([name, value]) => `-F ${shell(`${name}=${value}`)}`), url].join(" \\\n  "),
    python: [
      "import os, requests",
      "",
      `with open(${JSON.stringify(file)}, "rb") as file:`,
      "    answer = requests.post(",
      `        ${JSON.stringify(url)},`,
      `        headers={"MLP-API-KEY": os.environ["KEY"]},`,
      `        files={"file": file},`,
      ...(fields.length ? [`        data=${JSON.stringify(Object.fromEntries(fields))},`] : []),
      "    )",
      "answer.raise_for_status()",
      "print(answer.json())",
    ].join("\n"),
    javascript: [
      "const form = new FormData();",
      `form.append("file", file); // a File or Blob, such as input.files[0]`,
      ...fields.map(([name, value]) => `form.append(${JSON.stringify(name)}, ${JSON.stringify(value)});`),
      `const answer = await fetch(${JSON.stringify(url)}, {`,
      `  method: "POST",`,
      `  headers: { "MLP-API-KEY": key },`,
      "  body: form,",
      "});",
      "console.log(await answer.json());",
    ].join("\n"),
  };
}

function jsonCode(url, body, file) {
  const text = JSON.stringify(body, null, 2);
  const encoded = file ? `"$(base64 -w0 ${shell(file)})"` : "";
  const curl = file ? shell(JSON.stringify(body)).replace("BASE64", `'${encoded}'`) : shell(JSON.stringify(body));
  const literal = python(body);
  return {
    curl: file
      ? `echo ${curl} |\n  curl -H "MLP-API-KEY: $KEY" -d @- ${url}`
      : `curl -H "MLP-API-KEY: $KEY" -d ${curl} \\\n  ${url}`,
    python: [
      file ? "import base64, os, requests" : "import os, requests",
      "",
      ...(file ? [`with open(${JSON.stringify(file)}, "rb") as file:`, "    encoded = base64.b64encode(file.read()).decode()"] : []),
      `body = ${file ? literal.replace('"BASE64"', "encoded") : literal}`,
      `answer = requests.post(${JSON.stringify(url)}, json=body, headers={"MLP-API-KEY": os.environ["KEY"]})`,
      "answer.raise_for_status()",
      "print(answer.json())",
    ].join("\n"),
    javascript: [
      `const body = ${file ? text.replace('"BASE64"', "encoded /* the file in base64 */") : text};`,
      `const answer = await fetch(${JSON.stringify(url)}, {`,
      `  method: "POST",`,
      `  headers: { "MLP-API-KEY": key, "content-type": "application/json" },`,
      "  body: JSON.stringify(body),",
      "});",
      "console.log(await answer.json());",
    ].join("\n"),
  };
}

export function chatCode(model, messages, settings) {
  const url = `${base}api/adapters/compat/v1`;
  const body = { model, messages, ...settings, stream: true };
  const options = Object.entries(settings).map(([name, value]) => `    ${name}=${JSON.stringify(value)},`);
  return {
    curl: `curl -N -H "Authorization: Bearer $KEY" -H "content-type: application/json" \\\n  -d ${shell(JSON.stringify(body))} \\\n  ${url}/chat/completions`,
    python: [
      "import os",
      "from openai import OpenAI",
      "",
      `client = OpenAI(base_url=${JSON.stringify(url)}, api_key=os.environ["KEY"])`,
      "stream = client.chat.completions.create(",
      `    model=${JSON.stringify(model)},`,
      `    messages=${python(messages).replaceAll("\n", "\n    ")},`,
      ...options,
      "    stream=True,",
      ")",
      "for chunk in stream:",
      "    if chunk.choices:",
      `        print(chunk.choices[0].delta.content or "", end="", flush=True)`,
    ].join("\n"),
    javascript: [
      `import OpenAI from "openai";`,
      "",
      `const client = new OpenAI({ baseURL: ${JSON.stringify(url)}, apiKey: process.env.KEY });`,
      `const stream = await client.chat.completions.create(${JSON.stringify(body, null, 2)});`,
      "for await (const chunk of stream) {",
      `  process.stdout.write(chunk.choices[0]?.delta?.content ?? "");`,
      "}",
    ].join("\n"),
  };
}
