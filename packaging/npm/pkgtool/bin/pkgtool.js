#!/usr/bin/env node
// Starts the binary from the package for this platform, with the same arguments, streams and exit code.
"use strict";

const { spawn } = require("node:child_process");
const { constants } = require("node:os");

/** The binary's path, or a message and the end. */
function binary() {
  if (process.env.PKGTOOL_BIN) {
    return process.env.PKGTOOL_BIN;
  }
  const name = `@pkgtool/${process.platform}-${process.arch}`;
  try {
    return require.resolve(`${name}/pkgtool`);
  } catch {
    fail(
      `${name} is not installed: either there is no binary for this platform, or npm was told to leave out ` +
        "optional packages (--omit=optional). Install it, or name a binary in PKGTOOL_BIN",
    );
  }
}

function fail(message) {
  process.stderr.write(`error: ${message}\n`);
  process.exit(2);
}

const path = binary();
const child = spawn(path, process.argv.slice(2), { stdio: "inherit" });
child.on("error", (error) => fail(`${path} cannot be run: ${error.message}`));
// A terminal sends a signal to both of them; what is sent to this one alone is passed on.
const passed = ["SIGINT", "SIGTERM", "SIGHUP"];
const pass = (signal) => child.kill(signal);
passed.forEach((signal) => process.on(signal, pass));
child.on("exit", (code, signal) => {
  process.exitCode = signal ? 128 + constants.signals[signal] : code;
});
