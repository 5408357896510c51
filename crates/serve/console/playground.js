// The list of services, and the page that tries one.

import { modelPath } from "./api.js";
import { Chat } from "./chat.js";
import { Trial } from "./form.js";
import { Badge, bytes, Empty, Failure, html, Loading, Page, Tabs, useData, useEffect, useMemo, useState } from "./parts.js";

const STATES = {
  loaded: ["good", "loaded"],
  ready: ["", "ready"],
  proxy: ["", "proxy"],
  inactive: ["bad", "inactive"],
  untrained: ["warn", "not trained"],
};

export const FORMS = {
  chat: "Chat",
  picture: "Picture",
  sound: "Sound",
  speech: "Speak",
  painting: "Paint",
  texts: "Texts",
  tensors: "Tensors",
  json: "JSON",
};

const State = ({ of }) => {
  const [kind, name] = STATES[of.state] ?? ["", of.state];
  return html`<${Badge} kind=${kind}>${name}</${Badge}>`;
};

export function Services() {
  const { data, error } = useData("console/services", "services");
  const [search, setSearch] = useState("");
  const found = useMemo(() => {
    const words = search.toLowerCase().split(/\s+/).filter(Boolean);
    return data?.filter((one) => {
      const text = [one.shown, ...one.capabilities, ...one.backends].join(" ").toLowerCase();
      return words.every((word) => text.includes(word));
    });
  }, [data, search]);
  const field = html`<input type="search" aria-label="Search models" placeholder="Search" value=${search}
    onInput=${(event) => setSearch(event.target.value)} />`;
  return html`<${Page} title="Models" actions=${field}>
    <${Failure} error=${error} />
    ${!data && !error && html`<${Loading} />`}
    ${found && !found.length && html`<${Empty}>${data.length ? "No model matches." : "No package is served. Start the server with a directory of packages."}</${Empty}>`}
    ${found && found.length > 0 && html`<ul class="cards">${found.map((one) => html`<${Card} one=${one} key=${one.account + "/" + one.name} />`)}</ul>`}
  </${Page}>`;
}

const Card = ({ one }) => {
  const path = `#/services/${encodeURIComponent(one.account)}/${encodeURIComponent(one.name)}`;
  return html`<li class="card">
    <h2><a href=${path}>${one.shown}</a></h2>
    <${State} of=${one} />
    <p>${one.capabilities.join(", ") || "\u00a0"}</p>
    <p class="faint">${one.backends.join(", ")}${one.running + one.waiting > 0 && ` · ${one.running} running, ${one.waiting} waiting`}</p>
    ${one.reason && html`<p class="reason">${one.reason}</p>`}
  </li>`;
};

export function Playground({ account, name, session }) {
  const path = `console/services/${encodeURIComponent(account)}/${encodeURIComponent(name)}`;
  const { data, error } = useData(path, "services");
  const [form, setForm] = useState();
  const forms = data?.summary.forms ?? [];
  const chosen = forms.includes(form) ? form : forms[0];
  useEffect(() => document.getElementById("main")?.focus({ preventScroll: true }), []);
  if (!data) {
    return html`<${Page} title=${name}><${Failure} error=${error} />${!error && html`<${Loading} />`}</${Page}>`;
  }
  const { summary } = data;
  const service = { ...data, account, name, path: modelPath({ account, name }) };
  const docs = `docs?service=${encodeURIComponent(`${account}/${name}`)}`;
  const links = html`<${State} of=${summary} /><a href=${docs}>API of this model</a>`;
  return html`<${Page} title=${summary.shown} actions=${links}>
    <p class="faint">${[
      summary.capabilities.join(", "),
      data.bytes && bytes(data.bytes),
      data.license,
      data.recipes?.[0] && `recipe ${data.recipes[0].name}`,
    ].filter(Boolean).join(" · ")}</p>
    ${summary.reason && html`<div class="notice">${summary.reason}</div>`}
    ${!session.predict && html`<div class="notice">This key may not send requests to models.</div>`}
    ${forms.length > 1 && html`<${Tabs} label="Kind of request" names=${forms.map((id) => [id, FORMS[id]])} chosen=${chosen} choose=${setForm} />`}
    ${!forms.length && html`<${Empty}>It takes no requests${summary.state === "untrained" && html` until <a href="#/training">it is trained</a>`}.</${Empty}>`}
    ${chosen === "chat" && html`<${Chat} service=${service} key="chat" />`}
    ${chosen && chosen !== "chat" && html`<${Trial} service=${service} form=${chosen} key=${chosen} />`}
  </${Page}>`;
}
