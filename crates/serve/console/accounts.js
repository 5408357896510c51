// Usage of the account; for the operator accounts and keys, too.

import { changed, part, post, send } from "./api.js";
import { Badge, bytes, CopyButton, Failure, html, Loading, Page, Table, useAction, useData, useState, When } from "./parts.js";

export function Accounts({ session }) {
  return html`<${Page} title="Accounts">
    <${Usage} session=${session} />
    ${session.isOperator && html`<${Manage} />`}
  </${Page}>`;
}

function Usage({ session }) {
  const { data, error } = useData(`api/mlpcore/account/${part(session.account)}/usage`);
  if (!data) return html`<${Failure} error=${error} />${!error && html`<${Loading} />`}`;
  const { stored } = data;
  const limit = stored.limit ? ` of ${bytes(stored.limit)}` : "";
  return html`<section><h2>Usage of ${session.account}</h2>
    <p>${data.from} to ${data.to}: ${data.cpuSeconds.toFixed(1)} CPU seconds. Stored: ${bytes(stored.total)}${limit}${" "}
      (tasks ${bytes(stored.tasks)}, datasets ${bytes(stored.datasets)}, packages ${bytes(stored.packages)}, caches ${bytes(stored.caches)}).</p>
    <${Table} caption="Usage through the chat adapters" columns=${["Day", "Model", "Requests", "Prompt tokens", "Answer tokens", "Cached"]}
      empty="No requests to the chat adapters in this time."
      rows=${data.usage.map((one) => [one.date, `${one.account}/${one.model}`, one.requests, one.promptTokens, one.completionTokens, one.cachedTokens])} />
  </section>`;
}

function Manage() {
  const accounts = useData("console/accounts", "accounts");
  const keys = useData("console/keys");
  const [run, busy, error] = useAction();
  const [secret, setSecret] = useState();
  const change = (body) => run(async () => {
    await send("console/accounts", body);
    changed("accounts");
  });
  const create = (event) => {
    event.preventDefault();
    const form = event.target;
    run(async () => {
      await send("console/accounts", { name: form.name.value.trim(), rps: Number(form.rps.value || 0) });
      form.reset();
      changed("accounts");
    });
  };
  const createKey = (event) => {
    event.preventDefault();
    const form = event.target;
    const permissions = ["predict", "read", "write"].filter((name) => form[name].checked).join(",");
    run(async () => {
      const days = form.days.value ? { days: Number(form.days.value) } : {};
      const body = { account: form.account.value, name: form.key.value.trim(), permissions, ...days };
      const made = await (await post("console/keys", body)).json();
      setSecret(made.secret);
      form.reset();
      await keys.read();
    });
  };
  const revoke = (id) => run(async () => {
    await send("console/keys/revoke", { id });
    await keys.read();
  });
  const names = accounts.data ?? [];
  return html`<${Failure} error=${error ?? accounts.error ?? keys.error} />
    <section><h2>Accounts</h2>
      <${Table} caption="Accounts" columns=${["Number", "Name", "Requests per second", "State", "Created", "Actions"]}
        rows=${names.map((one) => [one.id, one.name, one.rps ?? "unlimited",
          html`<${Badge} kind=${one.blocked ? "bad" : "good"}>${one.blocked ? "blocked" : "active"}</${Badge}>`,
          html`<${When} at=${one.createdAt} />`,
          html`<button type="button" class="small" disabled=${busy} onClick=${() => change({ name: one.name, blocked: !one.blocked })}>${one.blocked ? "Unblock" : "Block"}</button>`])} />
      <form class="panel fields" onSubmit=${create}>
        <label>Name<input name="name" required autocomplete="off" /></label>
        <label>Requests per second (empty: unlimited)<input name="rps" type="number" min="1" /></label>
        <button disabled=${busy}>Create the account</button>
      </form>
    </section>
    <section><h2>Keys</h2>
      ${secret && html`<div class="notice" role="status">The key, shown only this once: <code>${secret}</code> <${CopyButton} text=${secret} />
        <button type="button" class="small" onClick=${() => setSecret()}>Hide</button></div>`}
      <${Table} caption="Keys" columns=${["Name", "Account", "Permissions", "Created", "Expires", "Actions"]} empty="No key."
        rows=${(keys.data ?? []).map((one) => [one.name, one.account, one.permissions, html`<${When} at=${one.createdAt} />`,
          one.expiresAt ? html`<${When} at=${one.expiresAt} />` : "never",
          one.revoked ? html`<${Badge} kind="bad">revoked</${Badge}>` : html`<button type="button" class="small" disabled=${busy} onClick=${() => revoke(one.id)}>Revoke</button>`])} />
      <form class="panel fields" onSubmit=${createKey}>
        <label>Account<select name="account">${names.map((one) => html`<option>${one.name}</option>`)}</select></label>
        <label>Name<input name="key" required autocomplete="off" /></label>
        <label>Expires after days (empty: never)<input name="days" type="number" min="1" max="36500" /></label>
        <fieldset><legend>Permissions</legend>${["predict", "read", "write"].map((name) => html`<label class="inline"><input type="checkbox" name=${name} checked=${name !== "write"} /> ${name}</label>`)}</fieldset>
        <button disabled=${busy}>Create the key</button>
      </form>
    </section>`;
}
