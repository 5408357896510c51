// The machine: load and memory of the last hour, and where each model runs.

import { listen } from "./api.js";
import { bytes, COLOURS, Failure, html, Loading, Page, Table, useData, useEffect, useRef, useState } from "./parts.js";

const HOUR = 720;
// Title, series of a name and a value of a sample, and the range of the values.
const CHARTS = [
  ["Processors, %", [["use", (one) => one.cpu]], [0, 100]],
  ["Memory, GB", [["models", (one) => one.models / 1e9], ["all programs", (one) => one.memory / 1e9]]],
  ["Tasks", [["running", (one) => one.running], ["waiting", (one) => one.waiting]]],
  ["Requests per second", [["requests", (one) => one.requests]]],
  ["Temperature, °C", [["highest", (one) => one.temperature]]],
];
const MAX_LARGEST = 6;

// The memory of the services that were the largest in the hour.
function largest(samples) {
  const most = {};
  for (const one of samples) {
    for (const [name, size] of one.largest) most[name] = Math.max(most[name] ?? 0, size);
  }
  const names = Object.keys(most).sort((a, b) => most[b] - most[a]).slice(0, MAX_LARGEST).sort();
  const sizes = (name) => (one) => (one.largest.find(([known]) => known === name)?.[1] ?? 0) / 1e6;
  return names.map((name) => [name, sizes(name)]);
}

export function Machine() {
  const { data, error } = useData("console/machine", "machine", "services");
  const [samples, setSamples] = useState([]);
  useEffect(() => data && setSamples(data.samples), [data]);
  useEffect(
    () => listen((names, sample) => names.includes("sample") && setSamples((before) => [...before.filter((one) => one.at < sample.at), sample].slice(-HOUR))),
    [],
  );
  if (!data) return html`<${Page} title="Machine"><${Failure} error=${error} />${!error && html`<${Loading} />`}</${Page}>`;
  const { machine, sessions, budget } = data;
  const used = sessions.reduce((sum, one) => sum + one.bytes, 0);
  const models = largest(samples);
  const charts = [...CHARTS, ["Memory of the largest models, MB", models]];
  const shown = charts.filter(([, series]) => series.length && samples.some((one) => series[0][1](one) != null));
  return html`<${Page} title="Machine">
    <p>${machine.cpu}, ${machine.cores} cores, ${bytes(machine.memory_bytes)}, ${machine.architecture}, ${machine.system}${machine.instruction_sets.length > 0 && `, ${machine.instruction_sets.join(", ")}`}</p>
    <p>Models use ${bytes(used)} of ${bytes(budget)}. <meter min="0" max=${budget} high=${budget * 0.9} value=${used} aria-label="Memory of models">${bytes(used)}</meter></p>
    ${samples.length < 2 && html`<p class="faint">Charts begin after some seconds.</p>`}
    ${samples.length > 1 && html`<div class="charts">${shown.map(([title, series, range]) => html`<${Chart} key=${[title, ...series.map(([name]) => name)].join()} title=${title} series=${series} range=${range} samples=${samples} />`)}</div>`}
    <h2>Loaded models</h2>
    <${Table} caption="Loaded models" columns=${["Service", "Method", "Runs on", "Processes", "Memory", "Running", "Waiting", "Runs", "Crashes"]}
      empty="No model is loaded. The first request loads one."
      rows=${sessions.map((one) => [one.service, one.method, one.engine ?? "", one.processes.join(", "), bytes(one.bytes), one.running, one.waiting, one.runs, one.crashes])} />
  </${Page}>`;
}

function Chart({ title, series, range, samples }) {
  const place = useRef();
  const chart = useRef();
  const values = [samples.map((one) => one.at / 1000), ...series.map(([, value]) => samples.map((one) => value(one) ?? null))];
  useEffect(() => {
    const element = place.current;
    const style = getComputedStyle(element);
    const axis = { stroke: style.color, grid: { stroke: style.getPropertyValue("--line"), width: 1 }, ticks: { show: false } };
    const size = () => ({ width: element.clientWidth, height: 160 });
    const made = new globalThis.uPlot(
      {
        ...size(),
        legend: { show: false },
        scales: { y: { range: range ?? ((_, least, most) => [0, Math.max(1, most * 1.1 || 1)]) } },
        axes: [axis, { ...axis, size: 45 }],
        series: [{}, ...series.map((_, at) => ({ stroke: COLOURS[at], width: 2 }))],
      },
      values,
      element,
    );
    chart.current = made;
    const resized = new ResizeObserver(() => made.setSize(size()));
    resized.observe(element);
    return () => {
      resized.disconnect();
      made.destroy();
    };
  }, []);
  useEffect(() => chart.current?.setData(values), [samples]);
  const last = samples[samples.length - 1];
  const now = series.map(([name, value]) => [name, value(last)?.toFixed(1) ?? "unknown"]);
  const text = now.map((one) => one.join(" ")).join(", ");
  return html`<figure>
    <figcaption>${title} ${now.map(([label, value], at) => html`<span class="faint"><i class="dot" data-colour=${at} /> ${label} ${value} </span>`)}</figcaption>
    <div ref=${place} role="img" aria-label=${`${title}: ${text}`}></div>
  </figure>`;
}
