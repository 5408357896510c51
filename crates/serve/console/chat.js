// A conversation with a model that answers in a stream.

import { adapters, eventData, post } from "./api.js";
import { chatCode, Code } from "./code.js";
import { Failure, html, useEffect, useRef, useState } from "./parts.js";

const NUMBERS = [
  ["temperature", 0, 2, "any"],
  ["max_tokens", 1, undefined, 1],
];

export function Chat({ service }) {
  const model = `${service.account}/${service.name}`;
  const [messages, setMessages] = useState([]);
  const [text, setText] = useState("");
  const [picture, setPicture] = useState();
  const [system, setSystem] = useState("");
  const [settings, setSettings] = useState({});
  const [state, setState] = useState({});
  const stop = useRef();
  const end = useRef();
  useEffect(() => () => stop.current?.abort(), []);
  useEffect(() => end.current?.scrollIntoView?.({ block: "nearest" }), [messages]);

  const send = async (event) => {
    event?.preventDefault();
    if (!text.trim() || state.busy) return;
    const content = picture
      ? [{ type: "image_url", image_url: { url: picture.url } }, { type: "text", text }]
      : text;
    const asked = [...messages.filter((one) => !one.failed), { role: "user", content }];
    setMessages([...asked, { role: "assistant", content: "" }]);
    setText("");
    setPicture();
    setState({ busy: true });
    stop.current = new AbortController();
    const told = system.trim() ? [{ role: "system", content: system }, ...asked] : asked;
    const began = performance.now();
    let [answer, first, usage] = ["", 0, undefined];
    const show = (failed) => setMessages([...asked, { role: "assistant", content: answer, failed }]);
    try {
      const body = { model, messages: told, ...settings, stream: true, stream_options: { include_usage: true } };
      const response = await post(`${adapters}/chat/completions`, body, stop.current.signal);
      for await (const data of eventData(response)) {
        if (data === "[DONE]") break;
        const chunk = JSON.parse(data);
        if (chunk.error) throw new Error(chunk.error.message);
        usage = chunk.usage ?? usage;
        const piece = chunk.choices?.[0]?.delta?.content;
        if (piece) {
          first ||= performance.now();
          answer += piece;
          show();
        }
      }
      const seconds = (performance.now() - (first || began)) / 1000;
      const tokens = usage?.completion_tokens;
      show();
      setState({ rate: tokens > 1 ? (tokens - 1) / seconds : undefined, tokens, wait: (first || performance.now()) - began });
    } catch (error) {
      const stopped = error.name === "AbortError";
      show(!answer && !stopped);
      setState(stopped ? { stopped: true } : { error });
    }
  };
  const key = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send(event);
  };
  const attach = async (file) => {
    if (!file) return;
    const reader = new FileReader();
    reader.onload = () => setPicture({ name: file.name, url: reader.result });
    reader.readAsDataURL(file);
  };
  const field = useRef();
  const plain = messages.filter((one) => one.content && !one.failed).map(({ role, content }) => ({ role, content: brief(content) }));
  const shown = plain.length ? plain : [{ role: "user", content: text || "Hello" }];
  return html`<section class="panel chat" aria-label="Conversation">
    <div class="talk" role="log" tabindex="0" aria-label="Messages">${messages.map((one) => html`<${Message} one=${one} busy=${state.busy} />`)}</div>
    <div ref=${end}></div>
    <${Failure} error=${state.error} />
    <p class="faint" role="status">${status(state)}</p>
    <form onSubmit=${send}>
      <label><span class="hidden">Message</span>
        <textarea rows="2" placeholder="Write a message" value=${text} onInput=${(event) => setText(event.target.value)} onKeyDown=${key} /></label>
      <div class="row">
        ${state.busy
          ? html`<button type="button" class="main" onClick=${() => stop.current.abort()}>Stop</button>`
          : html`<button class="main" disabled=${!text.trim()}>Send</button>`}
        ${service.seesPictures && html`<button type="button" onClick=${() => field.current.click()}>${picture ? picture.name : "Add a picture"}</button>
          <input ref=${field} type="file" class="hidden" tabindex="-1" aria-label="File with the picture" accept="image/*" onChange=${(event) => attach(event.target.files[0])} />`}
        ${messages.length > 0 && html`<button type="button" disabled=${state.busy} onClick=${() => setMessages([])}>New conversation</button>`}
      </div>
      <details><summary>Settings</summary><div class="fields">
        <label>system message<textarea rows="2" value=${system} onInput=${(event) => setSystem(event.target.value)} /></label>
        ${NUMBERS.map(([name, least, most, step]) => html`<label>${name}<input type="number" min=${least} max=${most} step=${step}
          onInput=${(event) => {
            const { [name]: _, ...rest } = settings;
            setSettings(event.target.value === "" ? rest : { ...rest, [name]: Number(event.target.value) });
          }} /></label>`)}
      </div></details>
    </form>
  </section>
  <${Code} samples=${chatCode(model, shown, settings)} />`;
}

const brief = (content) =>
  typeof content === "string" ? content : content.map((one) => (one.image_url ? { type: "image_url", image_url: { url: "data:image/jpeg;base64,…" } } : one));

function Message({ one, busy }) {
  const { content, role } = one;
  const parts = typeof content === "string" ? [{ text: content }] : content;
  return html`<div class="message ${role}"><span class="hidden">${role === "user" ? "You" : "Model"}:</span>
    ${parts.map((each) => (each.image_url ? html`<img alt="Your picture" src=${each.image_url.url} />` : html`<p>${each.text || (busy ? "…" : "")}</p>`))}</div>`;
}

function status(state) {
  if (state.busy) return "Answering…";
  if (state.stopped) return "Stopped.";
  if (state.tokens === undefined) return "";
  const rate = state.rate ? `, ${state.rate.toFixed(1)} tokens/s` : "";
  return `${state.tokens} tokens${rate}, first after ${Math.round(state.wait)} ms`;
}
