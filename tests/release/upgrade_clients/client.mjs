// JavaScript client during an upgrade. Arguments: the module of the client, the server's address, a token.
// It prints its state, the notifications that it has read, and at a message `end` all messages that it has received.
const [bundle, url, token] = process.argv.slice(2);
const { Greendot } = await import(bundle);

const received = [];
let queued;
const client = new Greendot({ url, getToken: () => token, device: "program", backoff: { baseMs: 100, capMs: 1_000 } });
const room = client.room("hall");
client.on("state", ({ state }) => {
  if (state !== "waiting" || queued) return;
  queued = room.send(`queued by ${client.user}`);
  console.log("waiting");
});
client.inbox.on("created", async ({ id, seq }) => {
  if (seq !== 1 && seq !== 4) return; // marks of before and after the upgrade
  await client.inbox.read(id);
  console.log(`read ${seq}`);
});
const ended = new Promise((resolve) =>
  room.on("message", ({ seq, body }) => {
    received.push([seq, body]);
    if (body === "end") resolve();
  }),
);
client.connect();
await room.join();
console.log("joined");
await ended;
await queued;
console.log(`received ${JSON.stringify(received)}`);
client.close();
