// Training: datasets, jobs with their progress, and what the held-out rows say.

import { base, part, remove, send, upload } from "./api.js";
import { Badge, bytes, Failure, html, Loading, Page, percent, Table, useAction, useData, usePages, useState, When } from "./parts.js";

const KINDS = { SUCCESS: "good", FAILED: "bad", CANCELED: "bad", RUNNING: "warn" };
const TRAINABLE = ["text-embedding", "image-embedding"];
const MAX_LABELS = 40;

export function Training({ session }) {
  const own = `api/mlpgate/account/${part(session.account)}`;
  const datasets = useData(`${own}/dataset`, "jobs");
  const page = (limit, before) => `${own}/job?${new URLSearchParams({ limit, ...(before && { before }) })}`;
  const jobs = usePages(page, (one) => one.jobId, "jobs");
  const services = useData("console/services", "services");
  const [open, setOpen] = useState();
  const [run, busy, error] = useAction();
  const job = jobs.rows?.find((one) => one.jobId === open);
  const cancel = (id) => run(async () => {
    await send(`${own}/job/${id}/cancel`);
    await jobs.read();
  });
  const drop = (id) => run(async () => {
    await remove(`${own}/dataset/${id}`);
    await datasets.read();
  });
  return html`<${Page} title="Training">
    <${Failure} error=${error ?? datasets.error ?? jobs.error} />
    ${session.write && html`<div class="split">
      <${Upload} own=${own} done=${datasets.read} />
      <${Start} own=${own} datasets=${datasets.data ?? []} session=${session} services=${services.data ?? []} done=${jobs.read} />
    </div>`}
    <section><h2>Jobs</h2>${!jobs.rows ? html`<${Loading} />` : html`<${Table} caption="Jobs"
      columns=${["Job", "Service", "State", "Progress", "Created", "Quality", "Actions"]} empty="No job yet."
      rows=${jobs.rows.map((one) => [
        one.jobId,
        html`<a href=${`#/services/${part(session.account)}/${part(one.modelName)}`}>${one.modelName}</a>`,
        html`<${Badge} kind=${KINDS[one.state] ?? ""}>${one.state.toLowerCase()}</${Badge}>`,
        html`<progress max="100" value=${one.percentage} aria-label=${`Progress of job ${one.jobId}`}>${one.percentage}%</progress>`,
        html`<${When} at=${one.createdAt} />`,
        one.errorMessage ? html`<span class="reason">${one.errorMessage}</span>` : quality(one.metrics),
        html`<span class="row">
          ${!one.done && session.write && html`<button type="button" class="small" disabled=${busy} onClick=${() => cancel(one.jobId)}>Cancel</button>`}
          ${one.metrics && html`<button type="button" class="small" onClick=${() => setOpen(one.jobId)}>Details</button>
            <a href=${`${base}${own}/job/${one.jobId}/report`}>Report</a>`}
        </span>`,
      ])} />`}${jobs.turn}</section>
    ${job?.metrics && html`<${Metrics} job=${job} />`}
    <section><h2>Datasets</h2>${!datasets.data ? html`<${Loading} />` : html`<${Table} caption="Datasets"
      columns=${["Dataset", "Name", "Rows", "Size", "Actions"]} empty="No dataset yet."
      rows=${datasets.data.map((one) => [
        one.id.datasetId, one.name, one.rows, bytes(one.size ?? one.bytes),
        session.write && html`<button type="button" class="small" disabled=${busy} onClick=${() => drop(one.id.datasetId)}>Delete</button>`,
      ])} />`}</section>
  </${Page}>`;
}

const quality = (metrics) => {
  const held = metrics?.validation;
  return held ? `accuracy ${percent(held.accuracy)}, macro F1 ${percent(held.macro_f1)}` : "";
};

function Upload({ own, done }) {
  const [run, busy, error] = useAction();
  const [made, setMade] = useState();
  const submit = (event) => {
    event.preventDefault();
    const form = event.target;
    const file = form.file.files[0];
    const body = new FormData();
    body.append("file", file);
    run(async () => {
      const name = form.name.value.trim() || file.name;
      const response = await upload(`${own}/dataset/raw?${new URLSearchParams({ name })}`, body);
      setMade(await response.json());
      form.reset();
      await done();
    });
  };
  return html`<form class="panel" onSubmit=${submit}><h2>Upload a dataset</h2>
    <label>File: JSON lines or CSV with <code>text</code> or <code>image_base64</code>, and <code>label</code>
      <input type="file" name="file" required /></label>
    <label>Name<input name="name" autocomplete="off" /></label>
    <button class="main" disabled=${busy}>Upload</button>
    <span role="status" class="faint">${busy ? "Uploading…" : made ? `dataset ${made.id?.datasetId ?? ""}, ${made.rows ?? ""} rows` : ""}</span>
    <${Failure} error=${error} />
  </form>`;
}

function Start({ own, datasets, services, session, done }) {
  const [run, busy, error] = useAction();
  const bases = services.filter((one) => !one.trained && one.capabilities.some((it) => TRAINABLE.includes(it)));
  const again = services.filter((one) => one.account === session.account && (one.state === "untrained" || one.trained));
  const submit = (event) => {
    event.preventDefault();
    const form = event.target;
    const model = form.base.value;
    const [account, name] = model.split("\n");
    run(async () => {
      let trained = name;
      if (form.name.value.trim()) {
        const query = new URLSearchParams({ name: form.name.value.trim() });
        await send(`api/mlpgate/account/${part(account)}/model/${part(name)}/derived?${query}`);
        trained = form.name.value.trim();
      }
      await send(`${own}/model/${part(trained)}/fit`, { datasetId: Number(form.dataset.value), config: {} });
      await done();
    });
  };
  const option = (one) => html`<option value=${`${one.account}\n${one.name}`}>${one.shown}</option>`;
  return html`<form class="panel" onSubmit=${submit}><h2>Train a classifier</h2>
    <label>Model<select name="base" required>
      <optgroup label="On the vectors of">${bases.map(option)}</optgroup>
      ${again.length > 0 && html`<optgroup label="Train again (without a name)">${again.map(option)}</optgroup>`}
    </select></label>
    <label>Name of the new service<input name="name" autocomplete="off" pattern="[a-z0-9_\\-]+" title="letters a to z, digits, _ and -" /></label>
    <label>Dataset<select name="dataset" required>${datasets.map((one) => html`<option value=${one.id.datasetId}>${one.id.datasetId} ${one.name}</option>`)}</select></label>
    <button class="main" disabled=${busy || !datasets.length}>Train</button>
    <${Failure} error=${error} />
  </form>`;
}

const number = (value) => (typeof value === "number" ? Number(value.toFixed(4)) : value ?? "");

function Metrics({ job }) {
  const { metrics } = job;
  const held = metrics.validation;
  const labels = held?.labels ?? [];
  return html`<section class="panel" aria-label="Quality of job ${job.jobId}"><h2>Job ${job.jobId}: ${job.modelName}</h2>
    <p>${quality(metrics)}</p>
    ${metrics.hints?.map((hint) => html`<p class="notice">${typeof hint === "string" ? hint : JSON.stringify(hint)}</p>`)}
    ${labels.length > 0 && html`<h3>Labels</h3><${Table} caption="Quality by label" columns=${["Label", "Precision", "Recall", "F1", "Rows"]}
      rows=${labels.map((one) => [one.label, number(one.precision), number(one.recall), number(one.f1), one.support])} />`}
    ${held?.confusion_matrix && labels.length <= MAX_LABELS && html`<h3>Confusion</h3><p class="faint">Rows are labels, columns are answers.</p>
      <${Table} caption="Confusion" columns=${["", ...labels.map((one) => one.label)]}
        rows=${held.confusion_matrix.map((row, at) => [html`<b>${labels[at].label}</b>`,
          ...row.map((count, column) => html`<span class=${count ? (at === column ? "hit" : "miss") : "faint"}>${count}</span>`)])} />`}
    ${metrics.worst?.length > 0 && html`<h3>Wrong answers, the surest first</h3><${Table} caption="Wrong answers"
      columns=${["Line", "Label", "Answer", "Its probability"]}
      rows=${metrics.worst.map((one) => [one.line, one.label, one.predicted, number(one.score)])} />`}
  </section>`;
}
