// The API reference: of the whole API, or of one service (`docs?service=ACCOUNT/NAME`).

const dark = matchMedia("(prefers-color-scheme: dark)").matches;
const service = new URLSearchParams(location.search).get("service");
const query = service ? `?service=${encodeURIComponent(service)}` : "";
const viewer = document.createElement("rapi-doc");
const attributes = {
  "spec-url": `openapi.json${query}`,
  theme: dark ? "dark" : "light",
  "render-style": "focused",
  "load-fonts": "false",
  "regular-font": "system-ui, sans-serif",
  "mono-font": "ui-monospace, monospace",
  "schema-style": "table",
  "allow-server-selection": "false",
  "show-header": "false",
  "persist-auth": "false",
  "primary-color": "#2563eb",
};
for (const [name, value] of Object.entries(attributes)) {
  viewer.setAttribute(name, value);
}
document.body.append(viewer);
