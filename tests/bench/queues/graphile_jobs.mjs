// Loads graphile-worker: jobs of 1 kB, with the settings of its own measurements (its page about performance).
// Called as `URL schema|creates|batches|ends|single_ends SECONDS CALLERS`; it talks as measure.py says. `single_ends` has
// the settings that are the default: a claim and a completion for each job.

import { createRequire } from "node:module";
import { once } from "node:events";

const home = process.env.PEER_MODULES;
const { makeWorkerUtils, run, runMigrations, Logger } = createRequire(`${home}/package.json`)("graphile-worker");

const BATCH = 500;
const BODY = "x".repeat(1000);
const CONCURRENCY = 24;
const [connectionString, what, secondsText, callersText] = process.argv.slice(2);
const seconds = Number(secondsText);
const callers = Number(callersText);
const BATCHING = {
  localQueue: { size: 500, refetchDelay: { durationMs: 10 } },
  completeJobBatchDelay: 0,
  failJobBatchDelay: 0,
};
const logger = new Logger(() => () => {});

const now = () => Date.now() / 1000;
const say = (count, began, ended) => console.log(JSON.stringify({ count, began, ended }));

async function waitForStart() {
  console.log("ready");
  await once(process.stdin, "data");
  process.stdin.destroy();
}

async function callUntilEnd(call) {
  await waitForStart();
  const began = now();
  const caller = async () => {
    let count = 0;
    while (now() - began < seconds) {
      count += await call();
    }
    return count;
  };
  const counts = await Promise.all(Array.from({ length: callers }, caller));
  say(counts.reduce((sum, count) => sum + count, 0), began, now());
}

async function create(call) {
  const utils = await makeWorkerUtils({ connectionString, maxPoolSize: Math.max(callers, 2), logger });
  await callUntilEnd(() => call(utils));
  await utils.release();
}

async function execute(batching) {
  let count = 0;
  let began = 0;
  let last = 0;
  await waitForStart();
  const runner = await run({
    noHandleSignals: true,
    logger,
    taskList: {
      bench: () => {
        last = now();
        began ||= last;
        count += 1;
      },
    },
    preset: {
      worker: {
        connectionString,
        concurrentJobs: CONCURRENCY,
        maxPoolSize: CONCURRENCY + 1,
        ...batching,
      },
    },
  });
  while (!began || now() - began < seconds) {
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  if (now() - last > 1) {
    console.error("the queue ran empty");
    process.exit(1);
  }
  await runner.stop();
  say(count, began, now());
}

const jobs = Array.from({ length: BATCH }, () => ({ identifier: "bench", payload: { body: BODY } }));
if (what === "schema") {
  await runMigrations({ connectionString, logger });
} else if (what === "creates") {
  await create(async (utils) => {
    await utils.addJob("bench", { body: BODY });
    return 1;
  });
} else if (what === "batches") {
  await create(async (utils) => (await utils.addJobs(jobs)).length);
} else {
  await execute(what === "ends" ? BATCHING : {});
}
