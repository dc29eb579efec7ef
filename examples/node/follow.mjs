// Prints the events of a ledger as JSON lines: first those that it has not
// seen, then the live ones. The cursor is its own, in a file.
//
//   eval "$(yieldlog subscriber --env)"
//   node follow.mjs [--once] [--since TIME] 'yieldlog.*.execution.*.settled' settled.cursor
import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { connect } from "@nats-io/transport-node";
import { jetstreamManager } from "@nats-io/jetstream";

const { values, positionals } = parseArgs({
  options: { once: { type: "boolean" }, since: { type: "string" } },
  allowPositionals: true,
});
const [subject, cursorFile] = positionals;
if (!cursorFile) {
  console.error("usage: follow.mjs [--once] [--since TIME] SUBJECT CURSOR_FILE");
  process.exit(2);
}

const nc = await connect({
  servers: process.env.NATS_URL,
  user: process.env.NATS_USER,
  pass: process.env.NATS_PASSWORD,
  maxReconnectAttempts: -1,
});
const jsm = await jetstreamManager(nc);
let cursor = existsSync(cursorFile) ? Number(readFileSync(cursorFile, "utf8")) : 0;

// Prints an event, and then keeps the cursor: an event is never missed, and
// comes twice only after a crash in between.
function handle(seq, headers, json) {
  if (seq <= cursor) return;
  const event = { seq, type: headers.get("ce-type"), id: headers.get("ce-id"), subject: headers.get("ce-subject"), body: json };
  console.log(JSON.stringify(event));
  cursor = seq;
  writeFileSync(cursorFile + ".new", `${seq}\n`);
  renameSync(cursorFile + ".new", cursorFile);
}

// Reads what is after the cursor. A host that is starting does not answer yet.
async function catchUp() {
  for (;;) {
    try {
      return await readBatches();
    } catch (err) {
      if (err.code !== 503 && err.name !== "TimeoutError") throw err;
      await new Promise((resume) => setTimeout(resume, 200));
    }
  }
}

async function readBatches() {
  for (let got = -1; got !== 0; ) {
    got = 0;
    const from = cursor === 0 && values.since ? { start_time: values.since } : { seq: cursor + 1 };
    const batch = await jsm.direct.getBatch("LIFECYCLE", { ...from, batch: 256, next_by_subj: subject });
    try {
      for await (const m of batch) {
        got++;
        handle(m.seq, m.header, m.json());
      }
    } catch (err) {
      if (err.code !== 404) throw err; // 404: nothing there
    }
  }
}

// Subscribe first: what is stored while the past is read waits here.
const live = nc.subscribe(subject);
await nc.flush();
await catchUp();
if (values.once) {
  await nc.close();
  process.exit(0);
}

// Reading is one thing at a time: a reconnect waits for the message before it.
let reading = Promise.resolve();
(async () => {
  for await (const s of nc.status()) {
    if (s.type === "reconnect") reading = reading.then(catchUp); // what was stored meanwhile was not told
  }
})();
for await (const m of live) {
  reading = reading.then(() => handle(Number(m.headers?.get("Nats-Sequence")), m.headers, m.json()));
  await reading;
}
