// Requests to the gateway, and its events. All addresses are relative to the page, so that it works
// behind a path prefix.

export const base = new URL(".", location.href.split("#")[0]).href;

const HEADERS = { "x-pkgtool-console": "1" };

export class ApiError extends Error {
  constructor(status, body, id) {
    const error = body?.error ?? {};
    super(error.message ?? `The server answered with status ${status}.`);
    this.status = status;
    this.code = error.code;
    this.place = error.args?.place;
    this.id = error.requestId ?? id;
  }
}

// Called after a request whose session has ended.
let ended = () => {};
export const onEnd = (call) => (ended = call);

async function request(method, path, options = {}) {
  const { body, headers, signal } = options;
  let response;
  try {
    response = await fetch(base + path, {
      method,
      body,
      signal,
      headers: { ...HEADERS, ...headers },
      credentials: "same-origin",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, { error: { message: "The server does not answer." } });
  }
  if (response.ok) return response;
  const id = response.headers.get("z-requestid");
  const text = await response.text();
  let answer;
  try {
    answer = JSON.parse(text);
  } catch {
    answer = { error: { message: text.slice(0, 500) || undefined } };
  }
  const error = new ApiError(response.status, answer, id);
  if (response.status === 401 && path !== "login") ended();
  throw error;
}

const json = (value) => ({
  body: JSON.stringify(value),
  headers: { "content-type": "application/json" },
});

export const get = async (path, signal) => (await request("GET", path, { signal })).json();
export const post = (path, value, signal) =>
  request("POST", path, value === undefined ? { signal } : { ...json(value), signal });
// A request whose answer is of no interest beyond its success.
export const send = async (path, value) => (await post(path, value)).text();
export const upload = (path, body, headers) => request("POST", path, { body, headers });
export const remove = (path) => request("DELETE", path);
export const raw = (path) => request("GET", path);

export const part = encodeURIComponent;
export const adapters = "api/adapters/compat/v1";
export const modelPath = (service) =>
  `api/mlpgateway/account/${part(service.account)}/model/${part(service.name)}`;

// The data of server-sent events in a response, as they arrive.
export async function* eventData(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += value;
    let end;
    while ((end = rest.indexOf("\n\n")) >= 0) {
      const lines = rest.slice(0, end).split("\n");
      rest = rest.slice(end + 2);
      const data = lines.filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trim());
      if (data.length) yield data.join("\n");
    }
  }
}

// What changes: `services`, `tasks`, `jobs`, `batches`, and `sample` with a value. After a pause of the
// connection everything may have changed.
const listeners = new Set();
let source;
export let connected = true;

export function listen(call) {
  listeners.add(call);
  return () => listeners.delete(call);
}

// Says what this page has changed.
export const changed = (...names) => tell(names);

const tell = (names, value) => listeners.forEach((call) => call(names, value));
const EVERYTHING = ["services", "tasks", "jobs", "batches", "machine"];
let wanted = false;

export function follow() {
  wanted = true;
  start();
}

export function unfollow() {
  wanted = false;
  stop();
}

// A hidden page has no stream: a browser opens few connections to a server, for all its tabs.
document.addEventListener("visibilitychange", () => {
  if (!wanted) return;
  if (document.hidden) {
    stop();
  } else {
    start();
    tell(EVERYTHING);
  }
});

function stop() {
  source?.close();
  source = undefined;
}

function start() {
  if (source || document.hidden) return;
  let begun = false;
  source = new EventSource(base + "console/events");
  source.addEventListener("hello", () => {
    connected = true;
    tell(begun ? [...EVERYTHING, "connection"] : ["connection"]);
    begun = true;
  });
  source.addEventListener("changed", (event) => tell(JSON.parse(event.data)));
  source.addEventListener("sample", (event) => tell(["sample"], JSON.parse(event.data)));
  source.onerror = () => {
    connected = false;
    tell(["connection"]);
    // A browser gives up after an answer such as 503 or 401.
    if (source?.readyState === EventSource.CLOSED) {
      stop();
      setTimeout(again, 1000);
    }
  };
}

async function again() {
  if (!wanted) return;
  try {
    await get("console/session");
  } catch (error) {
    if (error.status === 401) return;
  }
  start();
  tell(EVERYTHING);
}
