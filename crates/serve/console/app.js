// The console: its frame, its pages by the address after `#`, and the session.

import { connected, follow, get, listen, onEnd, send, unfollow } from "./api.js";
import { Component, Empty, Failure, html, render, useAction, useData, useEffect, useState } from "./parts.js";
import { Accounts } from "./accounts.js";
import { Batches } from "./batches.js";
import { Login } from "./login.js";
import { Machine } from "./machine.js";
import { Packages } from "./packages.js";
import { Playground, Services } from "./playground.js";
import { Tasks } from "./tasks.js";
import { Training } from "./training.js";

// Path, name, page, and who sees it.
const PAGES = [
  ["services", "Models", Services, () => true],
  ["tasks", "Tasks", Tasks, (session) => session.read],
  ["batches", "Batches", Batches, (session) => session.predict],
  ["training", "Training", Training, (session) => session.read],
  ["packages", "Packages", Packages, (session) => session.isOperator],
  ["machine", "Machine", Machine, (session) => session.isOperator],
  ["accounts", "Accounts", Accounts, (session) => session.read],
];

const LOGIN = "#login=";

const place = () => {
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  try {
    return [name || "services", ...rest.map(decodeURIComponent)];
  } catch {
    return ["services"];
  }
};

// A page that fails takes no other one with it.
class Guard extends Component {
  componentDidCatch(error) {
    this.setState({ error });
  }
  render() {
    return this.state.error ? html`<${Failure} error=${this.state.error} />` : this.props.children;
  }
}

function App() {
  const [session, setSession] = useState();
  const [reason, setReason] = useState();
  const [at, setAt] = useState(place());
  const [, setTurn] = useState(0);
  const enter = async () => {
    setAt(place());
    try {
      const found = await get("console/session");
      const may = Object.fromEntries(found.permissions.map((name) => [name, true]));
      setSession({ ...found, ...may });
      follow();
    } catch (error) {
      setSession(null);
      if (error.status !== 401) setReason(error);
    }
  };
  useEffect(() => {
    const move = () => setAt(place());
    // Another page of this browser may have chosen another account.
    const look = () => document.hidden || enter();
    addEventListener("hashchange", move);
    document.addEventListener("visibilitychange", look);
    const stop = listen((names) => names.includes("connection") && setTurn((turn) => turn + 1));
    onEnd(() => {
      unfollow();
      setSession((before) => {
        if (before) setReason({ message: "The session has ended. Log in again." });
        return null;
      });
    });
    begin().then(enter, (error) => {
      setReason(error);
      enter();
    });
    return () => {
      removeEventListener("hashchange", move);
      document.removeEventListener("visibilitychange", look);
      stop();
    };
  }, []);
  if (session === undefined) return "";
  if (!session) {
    const entered = () => {
      setReason();
      return enter();
    };
    return html`<${Login} reason=${reason} entered=${entered} />`;
  }
  const pages = PAGES.filter(([, , , sees]) => sees(session));
  const leave = async () => {
    await send("logout").catch(() => {});
    unfollow();
    setReason();
    setSession(null);
  };
  const skip = (event) => {
    event.preventDefault();
    document.getElementById("main").focus();
  };
  return html`<a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
    <nav aria-label="Pages">
      <a class="brand" href="#/services">pkgtool</a>
      <ul>${pages.map(
        ([id, name]) => html`<li><a href="#/${id}" aria-current=${id === at[0] ? "page" : undefined}>${name}</a></li>`,
      )}
        <li><a href="docs">API</a></li>
      </ul>
      <div class="who">
        ${session.isOperator ? html`<${AccountChoice} session=${session} chosen=${enter} />` : html`<span>${session.account}</span>`}
        <button type="button" class="small" onClick=${leave}>Log out</button>
      </div>
    </nav>
    <main id="main" tabindex="-1">
      ${!connected && html`<div class="notice" role="status">The server does not answer. This page connects again by itself.</div>`}
      <${Guard} key=${[session.account, ...at].join("/")}><${Chosen} at=${at} pages=${pages} session=${session} /></${Guard}>
    </main>`;
}

// The account whose services, tasks and trainings the operator sees.
function AccountChoice({ session, chosen }) {
  const { data } = useData("console/accounts", "accounts");
  const [run, busy, error] = useAction();
  const choose = (event) => run(async () => {
    await send("account", { account: event.target.value });
    // The events are those of the account, too.
    unfollow();
    await chosen();
  });
  const names = (data ?? [{ name: session.account }]).map((one) => one.name);
  return html`<label>Account <span class="faint">(operator)</span><select disabled=${busy} value=${session.account} onChange=${choose}>
      ${names.map((name) => html`<option value=${name} selected=${name === session.account}>${name}</option>`)}
    </select></label>
    <${Failure} error=${error} />`;
}

function Chosen({ at, pages, session }) {
  if (at[0] === "services" && at.length >= 3) {
    return html`<${Playground} account=${at[1]} name=${at[2]} session=${session} />`;
  }
  const page = pages.find(([id]) => id === at[0])?.[2];
  if (!page) return html`<${Empty}>There is no such page.</${Empty}>`;
  return html`<${page} rest=${at.slice(1)} session=${session} />`;
}

// Uses the code of a link, and removes it from the address and the history.
async function begin() {
  if (!location.hash.startsWith(LOGIN)) return;
  const code = location.hash.slice(LOGIN.length);
  history.replaceState(null, "", location.pathname);
  await send("login", { code });
}

const root = document.getElementById("app");
root.replaceChildren();
render(html`<${App} />`, root);
