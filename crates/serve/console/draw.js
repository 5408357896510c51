// Shows answers: labels as bars, boxes, lines and masks over the picture, times of sounds, vectors,
// pictures, speech; anything else as JSON. Texts of a model only ever become text.

import { COLOURS, html, percent, Table, useCallback, useEffect, useRef, useState } from "./parts.js";

const MAX_ROWS = 50;
const MAX_TEXT = 20000;

const colour = (index) => COLOURS[index % COLOURS.length];
const isList = (value) => Array.isArray(value);

export function Answer({ answer, input, form, brief }) {
  const shown = kinds(answer, input, form);
  return html`${shown}
    ${!brief && html`<details><summary>Answer as JSON</summary><${Json} value=${answer} /></details>`}`;
}

function kinds(answer, input, form) {
  if (answer?.blob) return html`<${Blob_} answer=${answer} />`;
  if (isList(answer?.boxes)) return html`<${Boxes} answer=${answer} input=${input} />`;
  if (isList(answer?.lines)) return html`<${Lines} answer=${answer} input=${input} />`;
  if (isList(answer?.classes)) return html`<${Classes} answer=${answer} input=${input} />`;
  if (isList(answer?.classified_texts)) return answer.classified_texts.map((one) => html`<${Labels} answer=${one} />`);
  if (isList(answer?.labels)) return html`${input?.url && html`<img class="shown" alt="The picture" src=${input.url} />`}<${Labels} answer=${answer} />`;
  if (typeof answer?.image === "string") return html`<img class="shown" alt="The picture of the answer" src=${`data:image/png;base64,${answer.image}`} />`;
  if (isList(answer?.segments)) return html`<${Segments} answer=${answer} input=${input} />`;
  if (isList(answer?.embedded_texts)) return html`<${Similarities} answer=${answer} texts=${input?.text} />`;
  if (isList(answer?.vector)) return html`<p>A vector of ${answer.vector.length} numbers</p><${Json} value=${answer.vector.slice(0, 16)} />`;
  if (isList(answer?.outputs)) return html`<${Outputs} answer=${answer} />`;
  if (typeof answer?.text === "string") return html`${form === "picture" && input?.url && html`<img class="shown" alt="The picture" src=${input.url} />`}<p class="said">${answer.text}</p>`;
  return html`<${Json} value=${answer} />`;
}

function Json({ value }) {
  const text = JSON.stringify(value, (_, inner) => (typeof inner === "string" && inner.length > 400 ? `${inner.slice(0, 400)}… (${inner.length} characters)` : inner), 1) ?? "";
  return html`<pre tabindex="0">${text.slice(0, MAX_TEXT)}${text.length > MAX_TEXT ? "…" : ""}</pre>`;
}

function Blob_({ answer }) {
  const [url, setUrl] = useState();
  useEffect(() => {
    const made = URL.createObjectURL(answer.blob);
    setUrl(made);
    return () => URL.revokeObjectURL(made);
  }, [answer]);
  if (!url) return "";
  if (answer.type.startsWith("audio/")) return html`<audio controls src=${url} aria-label="The speech" />`;
  if (answer.type.startsWith("image/")) return html`<img class="shown" alt="The picture of the answer" src=${url} />`;
  return html`<a href=${url} download="answer">Download the answer</a>`;
}

function Labels({ answer }) {
  const rows = answer.labels.slice(0, MAX_ROWS);
  return html`<ol class="bars" aria-label="Labels">${rows.map((one) => {
    const score = one.score ?? one.probability ?? 0;
    return html`<li><span>${one.label}${one.holds && html` <b>holds</b>`}</span>
      <meter min="0" max="1" value=${score} aria-hidden="true" /><span>${percent(score)}</span></li>`;
  })}</ol>${answer.abstains && html`<p class="notice">It abstains: the probability is too low.</p>`}`;
}

// Draws a picture and something over it, at the picture's own size.
function Canvas({ input, label, size, draw }) {
  const canvas = useRef();
  useEffect(() => {
    let gone = false;
    delete canvas.current.dataset.drawn;
    (async () => {
      const picture = await createImageBitmap(input.file, { imageOrientation: "from-image" });
      if (gone || !canvas.current) return;
      const [width, height] = size ?? [picture.width, picture.height];
      canvas.current.width = width;
      canvas.current.height = height;
      const context = canvas.current.getContext("2d");
      context.drawImage(picture, 0, 0, width, height);
      await draw(context, width, height);
      if (!gone && canvas.current) canvas.current.dataset.drawn = "yes";
    })().catch(() => {});
    return () => (gone = true);
  }, [input, draw]);
  return html`<canvas ref=${canvas} class="shown" role="img" aria-label=${label} />`;
}

async function bitmap(base64) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  return createImageBitmap(new Blob([bytes], { type: "image/png" }));
}

// The numbers of a mask's pixels.
async function mask(base64) {
  const picture = await bitmap(base64);
  const canvas = new OffscreenCanvas(picture.width, picture.height);
  const context = canvas.getContext("2d");
  context.drawImage(picture, 0, 0);
  return { data: context.getImageData(0, 0, picture.width, picture.height), width: picture.width, height: picture.height };
}

const rgb = (text) => [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));

async function overlay(context, base64, [x, y, width, height], of) {
  const { data, ...size } = await mask(base64);
  for (let at = 0; at < data.data.length; at += 4) {
    const found = of(data.data[at]);
    if (found) data.data.set([...rgb(found), 140], at);
    else data.data[at + 3] = 0;
  }
  const canvas = new OffscreenCanvas(size.width, size.height);
  canvas.getContext("2d").putImageData(data, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(canvas, x, y, width ?? size.width, height ?? size.height);
}

function tag(context, text, x, y, fill, unit) {
  context.font = `600 ${unit * 7}px system-ui, sans-serif`;
  const width = context.measureText(text).width + unit * 4;
  const top = Math.max(0, y - unit * 9);
  context.fillStyle = fill;
  context.fillRect(x, top, width, unit * 9);
  context.fillStyle = "#fff";
  context.textBaseline = "middle";
  context.fillText(text, x + unit * 2, top + unit * 4.5);
}

const unitOf = (width, height) => Math.max(1, Math.max(width, height) / 320);

function Boxes({ answer, input }) {
  const draw = useCallback(async (context, width, height) => {
    const unit = unitOf(width, height);
    for (const one of answer.boxes) {
      if (one.mask) await overlay(context, one.mask, one.mask_origin ?? [0, 0], (value) => value > 127 && colour(one.index));
    }
    for (const one of answer.boxes) {
      const { xmin, ymin, xmax, ymax } = one.box;
      context.strokeStyle = colour(one.index);
      context.lineWidth = unit * 1.5;
      context.strokeRect(xmin, ymin, xmax - xmin, ymax - ymin);
      tag(context, `${String(one.label).slice(0, 60)} ${percent(one.score)}`, xmin, ymin, colour(one.index), unit);
    }
  }, [answer]);
  const rows = answer.boxes.slice(0, MAX_ROWS).map((one) => [
    html`<i class="dot" data-colour=${one.index % COLOURS.length} /> ${one.label}`,
    percent(one.score),
    ["xmin", "ymin", "xmax", "ymax"].map((side) => Math.round(one.box[side])).join(", "),
  ]);
  return html`${input?.url && html`<${Canvas} input=${input} size=${[answer.width, answer.height]} draw=${draw} label="The picture with ${answer.boxes.length} boxes" />`}
    <${Table} caption="Boxes" columns=${["Label", "Score", "Left, top, right, bottom"]} rows=${rows} empty="It found nothing." />`;
}

function Lines({ answer, input }) {
  const draw = useCallback(async (context, width, height) => {
    const unit = unitOf(width, height);
    context.strokeStyle = COLOURS[0];
    context.lineWidth = unit;
    for (const { quad } of answer.lines) {
      context.beginPath();
      quad.forEach(([x, y], at) => (at ? context.lineTo(x, y) : context.moveTo(x, y)));
      context.closePath();
      context.stroke();
    }
  }, [answer]);
  return html`${input?.url && html`<${Canvas} input=${input} size=${[answer.width, answer.height]} draw=${draw} label="The picture with ${answer.lines.length} lines of text" />`}
    ${answer.text != null && html`<p class="said">${answer.text}</p>`}`;
}

function Classes({ answer, input }) {
  const draw = useCallback(
    (context, width, height) => overlay(context, answer.mask, [0, 0, width, height], (value) => colour(value)),
    [answer],
  );
  const rows = answer.classes.slice(0, MAX_ROWS).map((one) => [
    html`<i class="dot" data-colour=${one.index % COLOURS.length} /> ${one.label}`,
    percent(one.share),
    percent(one.score),
  ]);
  return html`${input?.url && html`<${Canvas} input=${input} size=${[answer.width, answer.height]} draw=${draw} label="The picture with its classes" />`}
    <${Table} caption="Classes" columns=${["Class", "Share", "Mean score"]} rows=${rows} />`;
}

const seconds = (value) => (typeof value === "number" ? value.toFixed(2) : "");

// The largest file whose wave is drawn, in bytes.
const MAX_WAVE_FILE = 16e6;
const WAVE_RATE = 8000;

// The loudness of a sound over time, with its segments.
function Wave({ input, segments }) {
  const place = useRef();
  useEffect(() => {
    let isLatest = true;
    const draw = async () => {
      const decoder = new OfflineAudioContext(1, 1, WAVE_RATE);
      const sound = await decoder.decodeAudioData(await input.file.arrayBuffer());
      const samples = sound.getChannelData(0);
      const canvas = place.current;
      if (!isLatest || !canvas) return;
      const { width, height } = canvas;
      const context = canvas.getContext("2d");
      context.clearRect(0, 0, width, height);
      segments.forEach((one, at) => {
        const [from, to] = [one.start, one.end].map((time) => (time / sound.duration) * width);
        context.fillStyle = `${COLOURS[at % 2]}40`;
        context.fillRect(from, 0, Math.max(1, to - from), height);
      });
      context.fillStyle = getComputedStyle(canvas).color;
      for (let x = 0; x < width; x += 1) {
        const [from, to] = [x, x + 1].map((it) => Math.floor((it * samples.length) / width));
        let most = 0;
        for (let at = from; at < to; at += 1) most = Math.max(most, Math.abs(samples[at]));
        const tall = Math.max(1, most * height);
        context.fillRect(x, (height - tall) / 2, 1, tall);
      }
      canvas.dataset.drawn = "";
    };
    // A browser may not decode what the server does.
    draw().catch(() => {});
    return () => {
      isLatest = false;
    };
  }, [input, segments]);
  return html`<canvas ref=${place} class="wave" width="800" height="80" role="img" aria-label="The sound with ${segments.length} segments" />`;
}

function Segments({ answer, input }) {
  const rows = answer.segments.slice(0, 500).map((one) => [seconds(one.start), seconds(one.end), one.text ?? ""]);
  return html`${typeof answer.text === "string" && html`<p class="said">${answer.text}</p>`}
    ${input?.file?.size < MAX_WAVE_FILE && html`<${Wave} input=${input} segments=${answer.segments} />`}
    <${Table} caption="Segments" columns=${["From, s", "To, s", "Words"]} rows=${rows} empty="It heard nothing." />`;
}

function cosine(a, b) {
  let [product, left, right] = [0, 0, 0];
  for (let at = 0; at < a.length; at += 1) {
    product += a[at] * b[at];
    left += a[at] ** 2;
    right += b[at] ** 2;
  }
  return product / Math.sqrt(left * right || 1);
}

function Similarities({ answer, texts }) {
  const vectors = answer.embedded_texts.map((one) => one.vector);
  const lines = (texts ?? "").split("\n").filter((line) => line.trim());
  const size = html`<p>${vectors.length} ${vectors.length === 1 ? "vector" : "vectors"} of ${vectors[0]?.length ?? 0} numbers</p>`;
  if (vectors.length < 2 || vectors.length > 30) return size;
  const rows = vectors.map((one, at) => [lines[at] ?? at + 1, ...vectors.map((other) => cosine(one, other).toFixed(3))]);
  return html`${size}<${Table} caption="Similarities" columns=${["Similarity", ...vectors.map((_, at) => at + 1)]} rows=${rows} />`;
}

function Outputs({ answer }) {
  const rows = answer.outputs.map((one) => [one.name, `${one.dtype}[${(one.shape ?? []).join(", ")}]`, flat(one.data).slice(0, 8).map(brief).join(", ")]);
  return html`<${Table} caption="Outputs" columns=${["Output", "Type", "First values"]} rows=${rows} />`;
}

const flat = (data) => (isList(data) ? data.flat(Infinity) : []);
const brief = (value) => (typeof value === "number" ? Number(value.toPrecision(5)) : String(value));

// What differs between two answers, in a few words.
export function difference(a, b) {
  if (isList(a?.boxes) && isList(b?.boxes)) {
    const best = a.boxes.map((one) => Math.max(0, ...b.boxes.filter((it) => it.label === one.label).map((it) => overlap(one.box, it.box))));
    const mean = best.length ? best.reduce((x, y) => x + y, 0) / best.length : 1;
    return `${b.boxes.length} boxes (${a.boxes.length}), mean overlap ${percent(mean)}`;
  }
  if (isList(a?.labels) && isList(b?.labels)) {
    const [first, other] = [a.labels[0], b.labels[0]];
    const same = b.labels.find((one) => one.label === first?.label);
    const change = same ? `${(100 * (same.score - first.score)).toFixed(1)} points` : "no longer listed";
    return first?.label === other?.label ? `the same label, ${change}` : `${other?.label} in place of ${first?.label} (${change})`;
  }
  const [left, right] = [numbers(a), numbers(b)];
  if (left.length && left.length === right.length) {
    const greatest = left.reduce((most, value, at) => Math.max(most, Math.abs(value - right[at])), 0);
    return `greatest difference ${greatest.toPrecision(3)}, similarity ${cosine(left, right).toFixed(5)}`;
  }
  if (typeof a?.text === "string") return a.text === b?.text ? "the same text" : `another text: ${String(b?.text).slice(0, 200)}`;
  return JSON.stringify(a) === JSON.stringify(b) ? "the same answer" : "another answer";
}

function numbers(answer) {
  if (isList(answer?.vector)) return answer.vector;
  if (isList(answer?.outputs)) return answer.outputs.flatMap((one) => flat(one.data)).filter(Number.isFinite);
  if (isList(answer?.embedded_texts)) return answer.embedded_texts.flatMap((one) => one.vector);
  return [];
}

function overlap(a, b) {
  const width = Math.min(a.xmax, b.xmax) - Math.max(a.xmin, b.xmin);
  const height = Math.min(a.ymax, b.ymax) - Math.max(a.ymin, b.ymin);
  if (width <= 0 || height <= 0) return 0;
  const area = (it) => (it.xmax - it.xmin) * (it.ymax - it.ymin);
  return (width * height) / (area(a) + area(b) - width * height);
}
