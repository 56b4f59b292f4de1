// Says how long a text is, and which is its longest word; one item after the other, until the input ends.
//
//   in    {"type":"item","id":"9f86d081884c7d65","key":"texts/a.txt","path":"/…/a.txt", …}
//   out   {"type":"done","id":"9f86d081884c7d65","output":…}  or failed, skipped, stop
//
// Every line out repeats the item's id. Before the outcome it may send messages, each answered by a line.
// console.error is for people: the item's log.
import { readFile } from "node:fs/promises";
import { createInterface } from "node:readline";

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

async function hear() {
  const { value, done } = await lines.next();
  return done ? null : JSON.parse(value);
}

let item; // the one at work

function say(message) {
  process.stdout.write(JSON.stringify({ ...message, id: item.id }) + "\n");
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

async function digest() {
  const words = await step("tidy", async () => {
    console.error("reading", item.path);
    return (await readFile(item.path, "utf8")).match(/[A-Za-z0-9]+/g) ?? [];
  });
  const longest = await step("longest", () => words.reduce((a, b) => (b.length > a.length ? b : a), ""));
  return `${words.length} words, the longest is ${longest}`;
}

while ((item = await hear()) !== null) {
  try {
    say({ type: "done", output: await digest() });
  } catch (error) {
    say({ type: "failed", message: String(error) });
  }
}
