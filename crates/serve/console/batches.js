// Batches: files with requests that run when nothing else does, and files with their answers.

import { adapters, base, part, post, remove, send, upload } from "./api.js";
import { Badge, bytes, Failure, html, Loading, milliseconds, Page, Table, useAction, usePages, When } from "./parts.js";

const KINDS = { completed: "good", failed: "bad", expired: "bad", cancelled: "bad", in_progress: "warn", cancelling: "warn" };
const ENDPOINTS = ["/v1/chat/completions", "/v1/responses", "/v1/completions", "/v1/embeddings"];
const ENDS = ["completed_at", "failed_at", "expired_at", "cancelled_at"];

export function Batches() {
  const batches = usePages(listOf("batches"), lastId, "batches");
  const files = usePages(listOf("files"), lastId, "batches");
  const [run, busy, error] = useAction();
  const cancel = (id) => run(async () => {
    await send(`${adapters}/batches/${part(id)}/cancel`);
    await batches.read();
  });
  const drop = (id) => run(async () => {
    await remove(`${adapters}/files/${part(id)}`);
    await files.read();
  });
  const created = async () => {
    await batches.read();
    await files.read();
  };
  return html`<${Page} title="Batches">
    <${Failure} error=${error ?? batches.error ?? files.error} />
    <${Create} created=${created} />
    <section><h2>Batches</h2>${!batches.rows ? html`<${Loading} />` : html`<${Table} caption="Batches"
      columns=${["Batch", "State", "Requests", "Endpoint", "Created", "Took", "Actions"]} empty="No batch yet."
      rows=${batches.rows.map((one) => [
        html`<code>${one.id}</code>`,
        html`<${Badge} kind=${KINDS[one.status] ?? ""}>${one.status.replaceAll("_", " ")}</${Badge}>`,
        html`<${Requests} batch=${one} />`,
        one.endpoint,
        html`<${When} at=${one.created_at * 1000} />`,
        took(one),
        html`<span class="row">
          ${one.output_file_id && html`<${Download} file=${one.output_file_id}>Answers</${Download}>`}
          ${one.error_file_id && html`<${Download} file=${one.error_file_id}>Failures</${Download}>`}
          ${["validating", "in_progress"].includes(one.status) && html`<button type="button" class="small" disabled=${busy} onClick=${() => cancel(one.id)}>Cancel</button>`}
        </span>`,
      ])} />`}${batches.turn}</section>
    <section><h2>Files</h2>${!files.rows ? html`<${Loading} />` : html`<${Table} caption="Files"
      columns=${["File", "Name", "Content", "Size", "Created", "Deleted", "Actions"]} empty="No file yet."
      rows=${files.rows.map((one) => [
        html`<code>${one.id}</code>`,
        one.filename,
        one.purpose === "batch" ? "requests" : "answers",
        bytes(one.bytes),
        html`<${When} at=${one.created_at * 1000} />`,
        html`<${When} at=${one.expires_at * 1000} />`,
        html`<span class="row"><${Download} file=${one.id}>Download</${Download}>
          <button type="button" class="small" disabled=${busy} onClick=${() => drop(one.id)}>Delete</button></span>`,
      ])} />`}${files.turn}</section>
  </${Page}>`;
}

const listOf = (name) => (limit, after) =>
  `${adapters}/${name}?${new URLSearchParams({ limit, ...(after && { after }) })}`;
const lastId = (one) => one.id;

const Download = ({ file, children }) =>
  html`<a href=${`${base}${adapters}/files/${part(file)}/content`} download=${`${file}.jsonl`}>${children}</a>`;

function took(batch) {
  const end = ENDS.map((name) => batch[name]).find(Boolean);
  return end ? milliseconds(Math.max(1, end - batch.created_at) * 1000) : "";
}

function Requests({ batch }) {
  const { completed, failed, total } = batch.request_counts;
  const faults = batch.errors?.data ?? [];
  if (faults.length) {
    return html`<ul class="list reason">${faults.slice(0, 5).map((one) => html`<li>${one.line && `line ${one.line}: `}${one.message}</li>`)}
      ${faults.length > 5 && html`<li>and ${faults.length - 5} more</li>`}</ul>`;
  }
  if (!total) return "";
  return html`<progress max=${total} value=${completed + failed} aria-label=${`Progress of ${batch.id}`} />
    <div>${completed + failed} of ${total}${failed > 0 && html`, <span class="reason">${failed} failed</span>`}</div>`;
}

function Create({ created }) {
  const [run, busy, error] = useAction();
  const submit = (event) => {
    event.preventDefault();
    const form = event.target;
    const body = new FormData();
    body.append("purpose", "batch");
    body.append("file", form.file.files[0]);
    run(async () => {
      const file = await (await upload(`${adapters}/files`, body)).json();
      await post(`${adapters}/batches`, { input_file_id: file.id, endpoint: form.endpoint.value, completion_window: "24h" });
      form.reset();
      await created();
    });
  };
  return html`<form class="panel" onSubmit=${submit}><h2>Run a file of requests</h2>
    <label>File: JSON lines, each with <code>custom_id</code>, <code>method</code>, <code>url</code> and <code>body</code>
      <input type="file" name="file" required /></label>
    <label>Endpoint of all requests<select name="endpoint">${ENDPOINTS.map((one) => html`<option>${one}</option>`)}</select></label>
    <div class="row"><button class="main" disabled=${busy}>Run</button>
      <span role="status" class="faint">${busy ? "Uploading…" : ""}</span></div>
    <${Failure} error=${error} />
  </form>`;
}
