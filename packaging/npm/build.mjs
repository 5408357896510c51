#!/usr/bin/env node
// Lays out the npm packages: one for each platform with its binary, and `pkgtool`, which depends on all of
// them optionally and starts the one that npm installed.
//
//     node packaging/npm/build.mjs OUT [devices=FOLDER] PLATFORM=BINARY…
//
// PLATFORM is Node's `linux-x64`, `linux-arm64`, `darwin-x64` or `darwin-arm64`. The version is the crate's. FOLDER has
// the binaries for devices, which each platform's package carries beside its own.

import { chmodSync, copyFileSync, cpSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = fileURLToPath(new URL(".", import.meta.url));
const root = join(here, "..", "..");
const PLATFORMS = ["linux-x64", "linux-arm64", "darwin-x64", "darwin-arm64"];
const DEVICES = ["aarch64-unknown-linux-musl", "armv7-unknown-linux-musleabihf", "x86_64-unknown-linux-musl"];
const LICENCES = ["LICENSE-APACHE", "LICENSE-MIT"];

const [out, ...words] = process.argv.slice(2);
const folders = words.filter((word) => word.startsWith("devices="));
const given = words.filter((word) => !folders.includes(word));
if (!out || given.length === 0 || folders.length > 1) {
  fail("usage: node packaging/npm/build.mjs OUT [devices=FOLDER] PLATFORM=BINARY…");
}
const devices = folders.flatMap((word) => DEVICES.map((target) => join(split(word)[1], `pkgtool-${target}`)));
for (const binary of devices) {
  if (!existsSync(binary)) {
    fail(`${binary} does not exist`);
  }
}
const version = readFileSync(join(root, "Cargo.toml"), "utf8").match(/^version = "([^"]+)"$/m)[1];
const main = JSON.parse(readFileSync(join(here, "pkgtool", "package.json"), "utf8"));

const optional = {};
for (const pair of given) {
  const [platform, binary] = split(pair);
  if (!PLATFORMS.includes(platform)) {
    fail(`${platform} is no platform, expected one of ${PLATFORMS.join(", ")}`);
  }
  if (!existsSync(binary)) {
    fail(`${binary} does not exist`);
  }
  const [os, cpu] = platform.split("-");
  const name = `@pkgtool/${platform}`;
  const place = directory(platform);
  for (const [from, name] of [[binary, "pkgtool"], ...devices.map((device) => [device, basename(device)])]) {
    copyFileSync(from, join(place, name));
    chmodSync(join(place, name), 0o755);
  }
  writeFileSync(join(place, "README.md"), `# ${name}\n\nThe binary of \`pkgtool\` for ${platform}. Install \`pkgtool\`.\n`);
  writeJson(join(place, "package.json"), {
    name,
    version,
    description: `The binary of pkgtool for ${platform}.`,
    license: main.license,
    os: [os],
    cpu: [cpu],
    // The binary is linked with glibc.
    ...(os === "linux" && { libc: ["glibc"] }),
    files: ["pkgtool", ...devices.map((device) => basename(device)), ...LICENCES],
    preferUnplugged: true,
  });
  optional[name] = version;
}
const place = directory("pkgtool");
cpSync(join(here, "pkgtool"), place, { recursive: true });
writeJson(join(place, "package.json"), { ...main, version, optionalDependencies: optional });

function split(pair) {
  const at = pair.indexOf("=");
  return at < 0 ? fail(`${pair} is not PLATFORM=BINARY`) : [pair.slice(0, at), pair.slice(at + 1)];
}

/** A new package's folder, with the licences. */
function directory(name) {
  const place = join(out, name);
  mkdirSync(place, { recursive: true });
  LICENCES.forEach((licence) => copyFileSync(join(root, licence), join(place, licence)));
  return place;
}

function writeJson(path, value) {
  writeFileSync(path, `${JSON.stringify(value, null, 2)}\n`);
}

function fail(message) {
  process.stderr.write(`error: ${message}\n`);
  process.exit(2);
}
