// The page of whoever is not logged in.

import { send } from "./api.js";
import { Failure, html, Page, useAction, useState } from "./parts.js";

export function Login({ reason, entered }) {
  const [key, setKey] = useState("");
  const [run, busy, error] = useAction();
  const submit = (event) => {
    event.preventDefault();
    run(async () => {
      await send("login", { key });
      // The page does not keep the key.
      setKey("");
      await entered();
    });
  };
  return html`<main id="main" class="login">
    <${Page} title="Log in">
      <${Failure} error=${error ?? reason} />
      <form class="panel" onSubmit=${submit}>
        <label>API key
          <input type="password" name="key" autocomplete="off" required value=${key}
            onInput=${(event) => setKey(event.target.value)} />
        </label>
        <button disabled=${busy}>Log in</button>
      </form>
      <p>The operator of this server logs in with the link that <code>pkgtool serve</code> prints.${" "}
        <code>pkgtool keys link</code> prints another one.</p>
      <p><a href="docs">API reference</a></p>
    </${Page}>
  </main>`;
}
