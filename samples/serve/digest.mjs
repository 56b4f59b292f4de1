// Says how long a text is, and which is its longest word; one item after the other, until the input ends.
//
//   in    {"type":"item","index":0,"key":"texts/a.txt","path":"/…/a.txt", …}
//   out   {"type":"done","index":0,"output":…}  or failed, skipped, stop
//
// Before the outcome it may send messages, each answered by a line. console.error is for people: the item's log.
import { readFile } from "node:fs/promises";
import { createInterface } from "node:readline";

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

async function hear() {
  const { value, done } = await lines.next();
  return done ? null : JSON.parse(value);
}

function say(message) {
  process.stdout.write(JSON.stringify(message) + "\n");
}

async function call(message) {
  say(message);
  const answer = await hear();
  if (answer?.error) throw new Error(answer.error);
  return answer;
}

/** What was remembered of the step, or what `work` returns; which is on disk when this returns. */
async function step(name, work) {
  const { n, found, value } = await call({ type: "step_get", name });
  if (found) return value;
  const result = await work();
  await call({ type: "step_put", name, n, value: result });
  return result;
}

async function digest(item) {
  const words = await step("tidy", async () => {
    console.error("reading", item.path);
    return (await readFile(item.path, "utf8")).match(/[A-Za-z0-9]+/g) ?? [];
  });
  const longest = await step("longest", () => words.reduce((a, b) => (b.length > a.length ? b : a), ""));
  return `${words.length} words, the longest is ${longest}`;
}

for (let item; (item = await hear()) !== null; ) {
  try {
    say({ type: "done", index: item.index, output: await digest(item) });
  } catch (error) {
    say({ type: "failed", index: item.index, message: String(error) });
  }
}
