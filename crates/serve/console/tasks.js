// The tasks of the account: live, filtered, page by page from the server.

import { part, raw, remove, send } from "./api.js";
import { Badge, bytes, Failure, html, Loading, milliseconds, Page, Table, useAction, usePages, useState, When } from "./parts.js";

const STATES = { QUEUED: "waiting", PROCESSING: "running", COMPLETED: "completed", CANCELED: "canceled" };
const KINDS = { QUEUED: "", PROCESSING: "warn", COMPLETED: "good", CANCELED: "bad" };
const MAX_SHOWN = 20000;

export function Tasks({ session }) {
  const [status, setStatus] = useState("");
  const [run, busy, error] = useAction();
  const [result, setResult] = useState();
  const address = (limit, before) =>
    `console/tasks?${new URLSearchParams({ limit, ...(status && { status }), ...(before && { before }) })}`;
  const { rows, error: failure, read, turn } = usePages(address, (task) => task.id, "tasks");
  const own = `api/mlpgateway/account/${part(session.account)}/async/task`;
  const cancel = (id) => run(async () => {
    await send(`${own}/${id}/cancel`);
    await read();
  });
  const drop = (id) => run(async () => {
    await remove(`${own}/${id}`);
    await read();
  });
  const open = (task) => run(async () => {
    const response = await raw(`${own}/${task.id}/response`);
    const type = response.headers.get("content-type") ?? "";
    if (!type.includes("json") && !type.startsWith("text/")) {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(await response.blob());
      link.download = `${task.id}.${type.split("/")[1]?.split(";")[0] ?? "bin"}`;
      link.click();
      URL.revokeObjectURL(link.href);
      return;
    }
    setResult({ id: task.id, text: await response.text() });
  });
  const cells = rows?.map((task) => [
    html`<code title=${task.id}>${task.id.slice(-12)}</code>`,
    html`<${Badge} kind=${KINDS[task.status]}>${task.error ? "failed" : STATES[task.status]}</${Badge}>`,
    `${task.account}/${task.service}`,
    html`<${When} at=${task.createdAt} />`,
    task.completedAt ? milliseconds(task.completedAt - task.createdAt) : "",
    task.attempts || "",
    task.error ? html`<span class="reason">${task.error}</span>` : task.expired ? "expired" : bytes(task.size),
    html`<span class="row">
      ${task.size != null && html`<button type="button" class="small" onClick=${() => open(task)}>Result</button>`}
      ${session.write && ["QUEUED", "PROCESSING"].includes(task.status) && html`<button type="button" class="small" disabled=${busy} onClick=${() => cancel(task.id)}>Cancel</button>`}
      ${session.write && !["QUEUED", "PROCESSING"].includes(task.status) && html`<button type="button" class="small" disabled=${busy} onClick=${() => drop(task.id)}>Delete</button>`}
    </span>`,
  ]);
  const choice = html`<label class="inline">State <select value=${status} onChange=${(event) => setStatus(event.target.value)}>
    <option value="">all</option>${Object.entries(STATES).map(([id, name]) => html`<option value=${id}>${name}</option>`)}
  </select></label>`;
  return html`<${Page} title="Tasks" actions=${choice}>
    <${Failure} error=${error ?? failure} />
    ${!rows && !failure && html`<${Loading} />`}
    ${rows && html`<${Table} caption="Tasks" columns=${["Task", "State", "Model", "Created", "Took", "Attempts", "Answer", "Actions"]} rows=${cells}
      empty="No tasks. Programs create them with POST …/async/predict." />`}
    ${turn}
    ${result && html`<section class="panel" aria-label="Result of ${result.id}"><h2>Result of <code>${result.id}</code></h2>
      <pre tabindex="0">${result.text.slice(0, MAX_SHOWN) || "(empty)"}${result.text.length > MAX_SHOWN && "…"}</pre>
      <button type="button" onClick=${() => setResult()}>Close</button></section>`}
  </${Page}>`;
}
