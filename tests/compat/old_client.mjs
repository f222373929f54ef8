// Two clients of an earlier version on a server of this one. Arguments: the bundle, the server. Prints their events.
const [bundle, url] = process.argv.slice(2);
const { Greendot } = await import(bundle);

const post = (path, body) =>
  fetch(url + path, { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" } });

async function until(condition, what) {
  for (const end = Date.now() + 20_000; !(await condition()); await new Promise((go) => setTimeout(go, 20)))
    if (Date.now() > end) throw new Error(`not within 20 s: ${what}`);
}

function come(user) {
  const getToken = async () => (await (await fetch(`${url}/dev/token?user=${user}`)).json()).token;
  const client = new Greendot({ url, getToken, device: "d", backoff: { baseMs: 50, capMs: 200 } });
  const told = { messages: [], states: [], presence: [], typing: [], notifications: [], badges: [] };
  client.on("state", ({ state, reason }) => told.states.push(reason ? `${state} ${reason.code}` : state));
  const room = client.room("lobby");
  room.on("message", ({ seq, op, body }) => told.messages.push([seq, op, body]));
  room.on("typing", ({ typers }) => told.typing.push(typers.map(({ user }) => user)));
  client.inbox.on("created", ({ body }) => told.notifications.push(body.text));
  client.inbox.on("badge", ({ unread }) => told.badges.push(unread));
  client.connect();
  return { client, room, told };
}

const alice = come("alice");
const bob = come("bob");
await Promise.all([alice.room.join(), bob.room.join()]);
bob.client.presence.watch(["alice"], ({ state }) => bob.told.presence.push(state));
await until(() => bob.told.presence.length === 1, "bob has the state of alice");
alice.room.typing(true);
await until(() => bob.told.typing.some((users) => users.includes("alice")), "alice types");
const { seq } = await alice.room.send({ text: "helo" });
await alice.room.edit(seq, { text: "hello" });
await bob.room.send("hi");
await bob.room.read();
await alice.client.status.set({ status: "busy", text: "writing" });
await until(() => bob.told.presence.at(-1) === "busy", "alice is busy");
await alice.client.status.set({ status: "auto" });
await until(() => bob.told.presence.at(-1) === "online", "alice is online");
await post("/dev/notify", { user: "alice", text: "for you" });
await until(() => alice.told.notifications.length === 1, "the notification has arrived");
const { head } = await alice.client.inbox.list();
await alice.client.inbox.read({ through: head });
// The connection is cut, and a message is sent meanwhile.
const before = alice.told.states.length;
await post("/dev/cut", { session: alice.client.welcome.session });
await until(() => alice.told.states.length > before, "alice is cut off");
await bob.room.send("meanwhile");
await until(() => alice.client.state === "online" && alice.told.messages.length === 4, "alice is back");
const history = (await bob.room.history({ limit: 10 })).map(({ seq }) => seq);
console.log(JSON.stringify({ alice: alice.told, bob: bob.told, history }));
// The server is stopped.
await until(() => bob.told.states.at(-1) === "waiting 4000", "the server has asked bob to reconnect");
alice.client.close();
bob.client.close();
console.log("sent away");
