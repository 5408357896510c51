// Tries a service: input, values, variant, answer, the code that does the same, and a comparison of
// variants on one input.

import { post } from "./api.js";
import { Code, code } from "./code.js";
import { Answer, difference } from "./draw.js";
import { Failure, html, milliseconds, Table, useAction, useEffect, useMemo, useRef, useState } from "./parts.js";

// Runs of a variant for a comparison; the first one loads the model and does not count.
const RUNS = 4;

const KINDS = {
  picture: { key: "image", accept: "image/*", name: "picture" },
  sound: { key: "audio", accept: "audio/*,video/webm", name: "sound" },
};

export function Trial({ service, form }) {
  const recipe = ["picture", "sound", "speech", "painting"].includes(form) ? service.recipes?.[0] : undefined;
  const [input, setInput] = useState();
  const [values, setValues] = useState({});
  const [variant, setVariant] = useState("");
  const [answer, setAnswer] = useState();
  const [compared, setCompared] = useState();
  const [run, busy, error] = useAction();
  const stop = useRef();
  const config = useMemo(() => configOf(values, variant), [values, variant]);
  const data = useMemo(() => dataOf(form, recipe, input), [form, recipe, input]);
  const runnable = service.variants?.filter((one) => !one.reason) ?? [];

  const send = (chosen = config, of = data) =>
    run(async () => {
      stop.current?.abort();
      stop.current = new AbortController();
      setCompared();
      setAnswer(await ask(service, of, chosen, stop.current.signal));
    });
  // A file runs at once: that is what a person drops it for.
  const take = (next) => {
    setInput(next);
    if (KINDS[form] && next) send(config, dataOf(form, recipe, next));
  };
  const compare = () =>
    run(async () => {
      stop.current?.abort();
      const { signal } = (stop.current = new AbortController());
      const rows = [];
      for (const one of runnable) {
        const choice = { ...config, backend: one.backend, precision: one.precision };
        const times = [];
        let latest;
        try {
          for (let turn = 0; turn < RUNS; turn += 1) {
            latest = await ask(service, data, choice, signal);
            if (turn) times.push(latest.time);
          }
        } catch (failure) {
          if (failure.name === "AbortError") throw failure;
          rows.push({ ...one, failure });
          setCompared([...rows]);
          continue;
        }
        times.sort((a, b) => a - b);
        rows.push({ ...one, time: times[Math.floor(times.length / 2)], answer: latest });
        setCompared([...rows]);
      }
    });
  useEffect(() => () => stop.current?.abort(), []);
  useEffect(() => () => input?.url && URL.revokeObjectURL(input.url), [input]);

  return html`<div class="split">
    <section class="panel" aria-label="Input">
      <${Input} form=${form} service=${service} input=${input} take=${take} />
      ${recipe && html`<${Settings} recipe=${recipe} values=${values} set=${setValues} />`}
      ${runnable.length > 1 && html`<label>Variant
        <select value=${variant} onChange=${(event) => setVariant(event.target.value)}>
          <option value="">the service's default</option>
          ${service.variants.map((one) => html`<option value=${`${one.backend} ${one.precision}`} disabled=${!!one.reason}>
            ${one.backend} ${one.precision}${one.reason ? " (does not run here)" : ""}</option>`)}
        </select></label>`}
      <div class="row">
        <button type="button" class="main" disabled=${busy || !data} onClick=${() => send()}>Run</button>
        ${busy && html`<button type="button" onClick=${() => stop.current?.abort()}>Stop</button>`}
        ${runnable.length > 1 && html`<button type="button" disabled=${busy || !data} onClick=${compare}>Compare variants</button>`}
        <span role="status" class="faint">${busy ? "Running…" : answer ? `answered in ${milliseconds(answer.time)}` : ""}</span>
      </div>
      <${Failure} error=${error} />
    </section>
    <section class="panel" aria-label="Answer">
      ${answer ? html`<${Answer} answer=${answer.value} input=${input} form=${form} />` : html`<p class="empty">The answer appears here.</p>`}
    </section>
  </div>
  ${compared && html`<${Comparison} rows=${compared} input=${input} form=${form} />`}
  <${Code} samples=${code({ service, form, data, config, recipe, input })} />`;
}

// Sends a request; the time includes the way to the server.
async function ask(service, data, config, signal) {
  const began = performance.now();
  const response = await post(`${service.path}/predict-with-config`, { data, config }, signal);
  const type = response.headers.get("content-type") ?? "";
  const value = type.includes("json") ? await response.json() : { blob: await response.blob(), type };
  return { value, time: performance.now() - began };
}

function configOf(values, variant) {
  const [backend, precision] = variant.split(" ");
  return { ...values, ...(backend ? { backend, precision } : {}) };
}

function dataOf(form, recipe, input) {
  if (!input) return undefined;
  if (form === "picture") return recipe ? { image: input.base64 } : { image_base64: input.base64 };
  if (form === "sound") return { audio: input.base64 };
  if (form === "speech") return { text: input.text, answer: "audio/wav" };
  if (form === "painting") return { text: input.text };
  if (form === "texts") return { texts: input.text.split("\n").filter((line) => line.trim()) };
  try {
    return JSON.parse(input.text);
  } catch {
    return undefined;
  }
}

function Input({ form, service, input, take }) {
  if (KINDS[form]) return html`<${FileInput} kind=${KINDS[form]} input=${input} take=${take} />`;
  if (form === "tensors" || form === "json") return html`<${JsonInput} form=${form} service=${service} input=${input} take=${take} />`;
  const name = { speech: "Text to speak", painting: "What the picture shows", texts: "Texts, one per line" }[form];
  return html`<label>${name}
    <textarea rows="4" value=${input?.text ?? ""} onInput=${(event) => {
      const text = event.target.value;
      take(text.trim() ? { text } : undefined);
    }} /></label>`;
}

function JsonInput({ form, service, input, take }) {
  const methods = service.methods ?? [];
  const [at, setAt] = useState(0);
  useEffect(() => {
    take({ text: form === "json" ? "{}" : template(methods[at]) });
  }, [at]);
  let fault;
  try {
    if (input) JSON.parse(input.text);
  } catch (error) {
    fault = error.message;
  }
  return html`${methods.length > 1 && html`<label>Method
      <select value=${at} onChange=${(event) => setAt(Number(event.target.value))}>
        ${methods.map((one, index) => html`<option value=${index}>${[one.backend, one.precision, one.component, one.method].filter(Boolean).join(" ")}</option>`)}
      </select></label>`}
    ${methods[at]?.inputs.map((one) => html`<div class="faint"><code>${one.name}</code> ${one.text}</div>`)}
    <label>Body
      <textarea rows="8" class="code" spellcheck="false" aria-invalid=${!!fault} value=${input?.text ?? ""}
        onInput=${(event) => take({ text: event.target.value })} /></label>
    ${fault && html`<p class="reason" role="alert">${fault}</p>`}`;
}

// The longest template of zeros as text; a larger tensor is base64.
const MAX_ZEROS = 512;
const SIZES = { float64: 8, int64: 8, uint64: 8, float32: 4, int32: 4, uint32: 4, float16: 2, bfloat16: 2, int16: 2, uint16: 2 };

function template(method) {
  const inputs = (method?.inputs ?? []).map((input) => {
    const shape = (input.shape ?? [1]).map((size) => (size < 0 ? 1 : size));
    const count = shape.reduce((a, b) => a * b, 1);
    if (count <= MAX_ZEROS) {
      const data = new Array(count).fill(input.dtype === "bool" ? false : 0);
      return { name: input.name, shape, dtype: input.dtype, data };
    }
    const data = count < 1 << 24 ? btoa("\0".repeat(count * (SIZES[input.dtype] ?? 1))) : "";
    return { name: input.name, shape, dtype: input.dtype, encoding: "base64", data };
  });
  return JSON.stringify({ inputs }, null, 1);
}

function FileInput({ kind, input, take }) {
  const [over, setOver] = useState(false);
  const field = useRef();
  const read = async (file) => file && take(await fileInput(file));
  const drop = (event) => {
    event.preventDefault();
    setOver(false);
    read(event.dataTransfer.files[0]);
  };
  const isSound = kind.key === "audio";
  return html`<div class="drop ${over ? "over" : ""}" onDragOver=${(event) => {
      event.preventDefault();
      setOver(true);
    }} onDragLeave=${() => setOver(false)} onDrop=${drop}>
    <p>${input ? input.name : `Drop a ${kind.name} here`}</p>
    <div class="row">
      <button type="button" class="main" onClick=${() => field.current.click()}>Choose a ${kind.name}</button>
      ${isSound ? html`<${Recorder} take=${read} />` : html`<${Camera} take=${read} />`}
    </div>
    <input ref=${field} type="file" class="hidden" tabindex="-1" aria-label="File with the ${kind.name}" accept=${kind.accept}
      onChange=${(event) => read(event.target.files[0])} />
    ${input && isSound && html`<audio controls src=${input.url} />`}
  </div>`;
}

async function fileInput(file) {
  const buffer = new Uint8Array(await file.arrayBuffer());
  let text = "";
  for (let at = 0; at < buffer.length; at += 0x8000) {
    text += String.fromCharCode(...buffer.subarray(at, at + 0x8000));
  }
  return { name: file.name, file, base64: btoa(text), url: URL.createObjectURL(file) };
}

const stop = (stream) => stream?.getTracks().forEach((track) => track.stop());

function Recorder({ take }) {
  const [recorder, setRecorder] = useState();
  const [run, , error] = useAction();
  const toggle = () =>
    run(async () => {
      if (recorder) {
        recorder.stop();
        setRecorder();
        return;
      }
      const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
      const made = new MediaRecorder(stream);
      const pieces = [];
      made.ondataavailable = (event) => pieces.push(event.data);
      made.onstop = () => {
        stop(stream);
        take(new File(pieces, "recording.webm", { type: made.mimeType }));
      };
      made.start();
      setRecorder(made);
    });
  if (!navigator.mediaDevices?.getUserMedia) return "";
  return html`<button type="button" aria-pressed=${!!recorder} onClick=${toggle}>${recorder ? "Stop recording" : "Record"}</button>
    <${Failure} error=${error} />`;
}

function Camera({ take }) {
  const [stream, setStream] = useState();
  const [run, , error] = useAction();
  const view = useRef();
  useEffect(() => {
    if (stream && view.current) view.current.srcObject = stream;
    return () => stop(stream);
  }, [stream]);
  if (!navigator.mediaDevices?.getUserMedia) return "";
  const close = () => {
    // The camera is free before a click opens it again.
    stop(stream);
    setStream();
  };
  const open = () => run(async () => setStream(await navigator.mediaDevices.getUserMedia({ video: true })));
  const shoot = () =>
    run(async () => {
      const canvas = document.createElement("canvas");
      canvas.width = view.current.videoWidth;
      canvas.height = view.current.videoHeight;
      canvas.getContext("2d").drawImage(view.current, 0, 0);
      const picture = await new Promise((done) => canvas.toBlob(done, "image/jpeg", 0.92));
      close();
      take(new File([picture], "camera.jpg", { type: "image/jpeg" }));
    });
  return html`${!stream && html`<button type="button" onClick=${open}>Camera</button>`}
    ${stream && html`<video ref=${view} autoplay muted playsinline aria-label="Camera" />
      <button type="button" class="main" onClick=${shoot}>Take the picture</button>
      <button type="button" onClick=${close}>Close</button>`}
    <${Failure} error=${error} />`;
}

function Settings({ recipe, values, set }) {
  if (!recipe.settings.length) return "";
  const change = (name, value) => {
    const next = { ...values };
    if (value === undefined) delete next[name];
    else next[name] = value;
    set(next);
  };
  return html`<details><summary>Values of the recipe</summary>
    <div class="fields">${recipe.settings.map((one) => html`<${Setting} one=${one} value=${values[one.name]} change=${(value) => change(one.name, value)} />`)}</div>
  </details>`;
}

function Setting({ one, value, change }) {
  const { schema, name } = one;
  const shown = typeof one.value === "string" ? one.value : JSON.stringify(one.value);
  const brief = shown?.length > 40 ? `${shown.slice(0, 40)}…` : shown;
  if (schema.enum || schema.type === "boolean") {
    const choices = schema.enum ?? [true, false];
    return html`<label>${name}<select value=${value === undefined ? "" : JSON.stringify(value)}
      onChange=${(event) => change(event.target.value ? JSON.parse(event.target.value) : undefined)}>
      <option value="">${brief}</option>${choices.map((choice) => html`<option value=${JSON.stringify(choice)}>${String(choice)}</option>`)}
    </select></label>`;
  }
  const isNumber = ["number", "integer"].includes(schema.type);
  const read = (text) => {
    if (text === "") return undefined;
    if (isNumber) return Number(text);
    try {
      return schema.type === "string" ? text : JSON.parse(text);
    } catch {
      return text;
    }
  };
  return html`<label>${name}<input type=${isNumber ? "number" : "text"} min=${schema.minimum} max=${schema.maximum}
    step=${schema.type === "integer" ? 1 : "any"} placeholder=${brief}
    value=${value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value)}
    onInput=${(event) => change(read(event.target.value))} /></label>`;
}

function Comparison({ rows, input, form }) {
  const first = rows.find((row) => row.answer);
  const cells = rows.map((row) =>
    row.failure
      ? [`${row.backend} ${row.precision}`, "", "", html`<span class="reason">${row.failure.message}</span>`]
      : [
          `${row.backend} ${row.precision}`,
          milliseconds(row.time),
          row === first ? "1" : (first.time / row.time).toFixed(2),
          row === first ? "the reference" : difference(first.answer.value, row.answer.value),
        ],
  );
  return html`<section class="panel" aria-label="Comparison of variants">
    <h2>Variants on this input</h2>
    <${Table} caption="Variants" columns=${["Variant", "Median time", "Times as fast", "Difference"]} rows=${cells} />
    <div class="gallery">${rows.filter((row) => row.answer).map(
      (row) => html`<figure><figcaption>${row.backend} ${row.precision}</figcaption>
        <${Answer} answer=${row.answer.value} input=${input} form=${form} brief /></figure>`,
    )}</div>
  </section>`;
}
