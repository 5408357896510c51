// The parts that pages are made of.

import { Component, createElement, Fragment, render } from "./vendor/preact.js";
import {
  useCallback,
  useEffect,
  useMemo,
  useRef,
  useState,
} from "./vendor/hooks.js";
import htm from "./vendor/htm.js";
import { get, listen } from "./api.js";

export const html = htm.bind(createElement);
export { Component, Fragment, render, useCallback, useEffect, useMemo, useRef, useState };

// Reads an address now and whenever one of these things changes.
export function useData(path, ...names) {
  const [state, setState] = useState({});
  const latest = useRef(0);
  const read = useCallback(async () => {
    if (!path) return;
    const turn = ++latest.current;
    try {
      const data = await get(path);
      if (turn === latest.current) setState({ data });
    } catch (error) {
      if (turn === latest.current) setState((before) => ({ ...before, error }));
    }
  }, [path]);
  useEffect(() => {
    read();
    return listen((changed) => names.some((name) => changed.includes(name)) && read());
  }, [read]);
  return { ...state, read };
}

// The number of entries of a page.
const PAGE = 50;

// Reads a list that the server pages. `address` gives the address for a number of entries after an
// entry, `idOf` the entry's id there. One entry more than a page shows that there are older ones.
export function usePages(address, idOf, ...names) {
  const list = address(PAGE + 1, "");
  const [state, setState] = useState({ list, starts: [""] });
  // Another list begins with its first page.
  const starts = state.list === list ? state.starts : [""];
  const { data, error, read } = useData(address(PAGE + 1, starts[starts.length - 1]), ...names);
  const all = data?.data ?? data;
  const rows = all?.slice(0, PAGE);
  const go = (next) => setState({ list, starts: next });
  const turn = html`<div class="row">
    ${starts.length > 1 && html`<button type="button" onClick=${() => go(starts.slice(0, -1))}>Newer</button>`}
    ${all?.length > PAGE && html`<button type="button" onClick=${() => go([...starts, idOf(rows[PAGE - 1])])}>Older</button>`}
  </div>`;
  return { rows, error, read, turn };
}

// Runs an action once at a time, with its error.
export function useAction() {
  const [state, setState] = useState({ busy: false });
  const run = useCallback(async (action) => {
    setState({ busy: true });
    try {
      const result = await action();
      setState({ busy: false });
      return result;
    } catch (error) {
      setState({ busy: false, error: error.name === "AbortError" ? undefined : error });
    }
  }, []);
  return [run, state.busy, state.error];
}

export const Failure = ({ error }) =>
  error &&
  html`<div class="failure" role="alert">
    <strong>${error.message}</strong>
    ${error.place && html`<div>Place: <code>${error.place}</code></div>`}
    ${error.id && html`<div class="faint">Request ${error.id}</div>`}
  </div>`;

export const Loading = () => html`<p class="faint" role="status">Reading…</p>`;

export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;

export const Badge = ({ kind, children }) => html`<span class="badge ${kind}">${children}</span>`;

export function Page({ title, actions, children }) {
  useEffect(() => {
    document.title = `${title} · pkgtool`;
  }, [title]);
  return html`<header class="head"><h1 tabindex="-1">${title}</h1><div class="row">${actions}</div></header>
    ${children}`;
}

export function Table({ caption, columns, rows, empty }) {
  if (!rows.length) return html`<${Empty}>${empty ?? "Nothing here."}</${Empty}>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${caption}>
    <table>
      <caption class="hidden">${caption}</caption>
      <thead><tr>${columns.map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>
      <tbody>${rows.map(
        (cells) => html`<tr>${cells.map((cell, at) => html`<td data-name=${columns[at]}>${cell}</td>`)}</tr>`,
      )}</tbody>
    </table>
  </div>`;
}

export function Tabs({ label, names, chosen, choose }) {
  const move = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const at = (names.findIndex(([id]) => id === chosen) + step + names.length) % names.length;
    choose(names[at][0]);
    event.currentTarget.children[at].focus();
  };
  return html`<div class="tabs" role="tablist" aria-label=${label} onKeyDown=${move}>
    ${names.map(
      ([id, name]) => html`<button type="button" role="tab" aria-selected=${id === chosen}
        tabindex=${id === chosen ? 0 : -1} onClick=${() => choose(id)}>${name}</button>`,
    )}
  </div>`;
}

export function CopyButton({ text }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    await navigator.clipboard?.writeText(text);
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return html`<button type="button" class="small" onClick=${copy}>${done ? "Copied" : "Copy"}</button>`;
}

const UNITS = ["B", "kB", "MB", "GB", "TB"];

export function bytes(count) {
  if (count == null) return "";
  let unit = 0;
  while (count >= 1000 && unit < UNITS.length - 1) {
    count /= 1000;
    unit += 1;
  }
  return `${unit && count < 10 ? count.toFixed(1) : Math.round(count)} ${UNITS[unit]}`;
}

export const milliseconds = (time) =>
  time < 1 ? `${time.toFixed(2)} ms` : time < 1000 ? `${time.toPrecision(3)} ms` : `${(time / 1000).toPrecision(3)} s`;

export function When({ at }) {
  if (at == null) return "";
  const date = new Date(at);
  const today = date.toDateString() === new Date().toDateString();
  const text = today ? date.toLocaleTimeString() : date.toLocaleString();
  return html`<time datetime=${date.toISOString()} title=${date.toLocaleString()}>${text}</time>`;
}

// Colours that differ in lightness, too; index 0 of a mask is often the background. `console.css`
// has the same ones for dots.
export const COLOURS = ["#2563eb", "#ea580c", "#16a34a", "#db2777", "#ca8a04", "#0891b2", "#7c3aed", "#65a30d", "#dc2626", "#475569"];

export const percent = (share) => `${(100 * share).toFixed(1)}%`;
