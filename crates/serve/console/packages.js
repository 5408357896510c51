// The packages of the server, and the findings in one with the lines of its files.

import { Badge, Empty, Failure, html, Loading, Page, useData, useState } from "./parts.js";

const KINDS = { error: "bad", warning: "warn", note: "" };

export function Packages() {
  const { data, error } = useData("console/packages", "services");
  const [open, setOpen] = useState();
  return html`<${Page} title="Packages">
    <${Failure} error=${error} />
    ${!data && !error && html`<${Loading} />`}
    ${data?.length === 0 && html`<${Empty}>No package.</${Empty}>`}
    <ul class="list">${data?.map((one) => html`<li>
      <div class="row"><code>${one.path}</code>
        <${Badge} kind=${one.reason ? "bad" : "good"}>${one.reason ? "not served" : "served"}</${Badge}>
        <button type="button" class="small" aria-expanded=${open === one.path} onClick=${() => setOpen(open === one.path ? undefined : one.path)}>Findings</button>
      </div>
      ${one.reason ? html`<pre class="reason">${one.reason}</pre>` : html`<p class="faint">${one.services.join(", ")}</p>`}
      ${open === one.path && html`<${Findings} path=${one.path} />`}
    </li>`)}</ul>
  </${Page}>`;
}

function Findings({ path }) {
  const { data, error } = useData(`console/findings?${new URLSearchParams({ path })}`, "services");
  if (!data) return html`<${Failure} error=${error} />${!error && html`<${Loading} />`}`;
  if (!data.length) return html`<p class="good">No findings.</p>`;
  return html`<ul class="list">${data.map((one) => html`<li>
    <div><${Badge} kind=${KINDS[one.severity]}>${one.severity}</${Badge}> <b>${one.code} ${one.rule}</b></div>
    <p>${one.message}</p>
    ${one.help && html`<p class="faint">${one.help}</p>`}
    <div class="faint"><code>${one.path}:${one.line}:${one.column}</code></div>
    ${one.text && html`<pre tabindex="0"><span class="faint">${String(one.line).padStart(4)} | </span>${one.text}</pre>`}
  </li>`)}</ul>`;
}
