// Scenarios with unmodified clients of Pusher: node pusher.mjs SCENARIO, with GREENDOT_PORT and the keys of the app.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import EchoModule from "laravel-echo";
import PusherServer from "pusher";
import Pusher from "pusher-js";

const Echo = EchoModule.default ?? EchoModule;
const { GREENDOT_PORT: port, GREENDOT_HTTP_PORT: httpPort = port } = process.env;
const app = { appId: "4711", key: "a-public-key", secret: "a secret of twenty+" };
const PATIENCE_MS = 8_000;

const server = new PusherServer({ ...app, host: "127.0.0.1", port: httpPort, useTLS: false });
const open = [];

function options(user, info, more = {}) {
  return {
    cluster: "own",
    wsHost: "127.0.0.1",
    wsPort: Number(port),
    forceTLS: false,
    enabledTransports: ["ws"],
    channelAuthorization: {
      customHandler: ({ socketId, channelName }, done) => {
        const data = channelName.startsWith("presence-") ? { user_id: user, user_info: info } : undefined;
        done(null, server.authorizeChannel(socketId, channelName, data));
      },
    },
    userAuthentication: {
      customHandler: ({ socketId }, done) =>
        done(null, server.authenticateUser(socketId, { id: String(user), user_info: info, watchlist: more.watchlist ?? [] })),
    },
    ...more,
  };
}

function client(user, info = { name: `Name of ${user}` }, more = {}) {
  const made = new Pusher(app.key, options(user, info, more));
  open.push(made);
  return made;
}

function within(promise, what) {
  let timer;
  const late = new Promise((_, reject) => (timer = setTimeout(() => reject(new Error(`no ${what} in time`)), PATIENCE_MS)));
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

function next(target, event, wanted = () => true) {
  return within(
    new Promise((resolve) => {
      const heard = (data, metadata) => {
        if (!wanted(data)) return;
        target.unbind(event, heard);
        resolve(metadata?.user_id === undefined ? data : { data, user_id: metadata.user_id });
      };
      target.bind(event, heard);
    }),
    event,
  );
}

async function subscribed(pusher, name) {
  const channel = pusher.subscribe(name);
  if (!channel.subscribed) await next(channel, "pusher:subscription_succeeded");
  return channel;
}

function quietly(target, event) {
  const seen = [];
  target.bind(event, (data) => seen.push(data));
  return seen;
}

async function until(holds, what) {
  for (let waited = 0; !(await holds()); waited += 20) {
    assert(waited < PATIENCE_MS, `not in time: ${what}`);
    await sleep(20);
  }
}

const scenarios = {
  async public() {
    const [ann, bob] = [client("ann"), client("bob")];
    const [one, two] = [await subscribed(ann, "news"), await subscribed(bob, "news")];
    const [first, second] = [next(one, "headline"), next(two, "headline")];
    await server.trigger("news", "headline", { text: "first ünïcode" });
    assert.deepEqual([await first, await second], [{ text: "first ünïcode" }, { text: "first ünïcode" }]);
    // The socket that caused an event does not get it.
    const skipped = quietly(one, "again");
    const other = next(two, "again");
    await server.trigger("news", "again", "plain text", { socket_id: ann.connection.socket_id });
    assert.equal(await other, "plain text");
    const last = next(one, "last");
    await server.triggerBatch([{ channel: "news", name: "last", data: { n: 1 } }]);
    assert.deepEqual(await last, { n: 1 });
    assert.deepEqual(skipped, []);
    bob.unsubscribe("news");
    const after = quietly(two, "later");
    const heard = next(one, "later");
    await server.trigger(["news", "other,list;1"], "later", {});
    await heard;
    assert.deepEqual(after, []);
  },

  // Two equal events of one second have one signature, and both are wanted.
  async twice() {
    const channel = await subscribed(client("ann"), "news");
    const seen = quietly(channel, "tick");
    await until(() => Date.now() % 1_000 < 300, "the beginning of a second");
    await Promise.all([server.trigger("news", "tick", {}), server.trigger("news", "tick", {})]);
    await until(() => seen.length === 2, "both events");
  },

  async private() {
    const ann = client("ann");
    const channel = await subscribed(ann, "private-orders.1");
    const got = next(channel, "shipped");
    await server.trigger("private-orders.1", "shipped", { id: 1 });
    assert.deepEqual(await got, { id: 1 });
    const bad = client("eve", {}, {
      channelAuthorization: { customHandler: (_, done) => done(null, { auth: `${app.key}:00ff` }) },
    });
    const refused = next(bad.subscribe("private-orders.1"), "pusher:subscription_error");
    const error = await refused;
    assert.equal(error.type, "AuthError");
    assert.equal(error.status, 401);
  },

  async presence() {
    const ann = client("ann", { name: "Ann", age: 7 });
    const room = await subscribed(ann, "presence-chat.1");
    assert.deepEqual(room.members.me, { id: "ann", info: { name: "Ann", age: 7 } });
    assert.equal(room.members.count, 1);
    const own = quietly(room, "pusher:member_added");
    const added = next(room, "pusher:member_added");
    const bob = client(17, { name: "Bob" }); // Laravel sends numbers
    const other = await subscribed(bob, "presence-chat.1");
    assert.deepEqual(await added, { id: "17", info: { name: "Bob" } });
    assert.deepEqual(Object.keys(other.members.members).sort(), ["17", "ann"]);
    assert.deepEqual(other.members.get("ann").info, { name: "Ann", age: 7 });
    // A second device of a user causes no event, and neither does its end.
    const again = client(17, { name: "Bob" });
    await subscribed(again, "presence-chat.1");
    again.disconnect();
    const typed = next(room, "client-wave", (data) => data.n === 2);
    other.trigger("client-wave", { n: 2 });
    assert.deepEqual(await typed, { data: { n: 2 }, user_id: "17" });
    assert.equal(own.length, 1);
    const gone = next(room, "pusher:member_removed");
    bob.disconnect();
    assert.equal((await gone).id, "17");
    assert.equal(room.members.count, 1);
    const { users } = await (await server.get({ path: "/channels/presence-chat.1/users" })).json();
    assert.deepEqual(users, [{ id: "ann" }]);
    // Another user on the same socket is refused.
    const mixed = client("ann", {}, {
      channelAuthorization: {
        customHandler: ({ socketId, channelName }, done) =>
          done(null, server.authorizeChannel(socketId, channelName, { user_id: channelName.slice(-3) })),
      },
    });
    await subscribed(mixed, "presence-ann");
    const error = await next(mixed.subscribe("presence-bob"), "pusher:subscription_error");
    assert.match(error.error, /belongs to user/);
  },

  async cache() {
    const early = client("ann");
    const channel = early.subscribe("cache-score");
    await next(channel, "pusher:cache_miss");
    const got = next(channel, "score");
    await server.trigger("cache-score", "score", { home: 1 });
    assert.deepEqual(await got, { home: 1 });
    const late = client("bob").subscribe("cache-score");
    assert.deepEqual(await next(late, "score"), { home: 1 });
  },

  async user() {
    const ann = client("ann", { name: "Ann" }, { watchlist: ["bob", "cleo"] });
    const online = [];
    ann.user.watchlist.bind("online", ({ user_ids }) => online.push(...user_ids));
    const offline = [];
    ann.user.watchlist.bind("offline", ({ user_ids }) => offline.push(...user_ids));
    const bob = client("bob");
    bob.signin();
    await within(bob.user.signinDonePromise, "sign-in");
    ann.signin();
    await within(ann.user.signinDonePromise, "sign-in");
    assert.equal(ann.user.user_data.id, "ann");
    await until(() => online.length === 1, "online");
    const cleo = client("cleo");
    cleo.signin();
    await until(() => online.length === 2, "another online");
    assert.deepEqual(online, ["bob", "cleo"]);
    bob.disconnect();
    await until(() => offline.length === 1, "offline");
    assert.deepEqual(offline, ["bob"]);
    await until(() => ann.user.serverToUserChannel?.subscribed, "the channel of the user");
    const told = next(ann.user, "note");
    await server.sendToUser("ann", "note", { text: "for you" });
    assert.deepEqual(await told, { text: "for you" });
    const ended = next(ann.connection, "disconnected");
    await server.terminateUserConnections("ann");
    await ended;
    await sleep(1_500);
    assert.equal(ann.connection.state, "disconnected"); // 4009: it stays away
    const bad = client("eve", {}, {
      userAuthentication: {
        customHandler: (_, done) => done(null, { auth: `${app.key}:00`, user_data: JSON.stringify({ id: "eve" }) }),
      },
    });
    await next(bad.connection, "connected");
    const closed = next(bad.connection, "disconnected");
    bad.signin();
    await closed;
  },

  async limits() {
    const ann = client("ann");
    const [one, two] = [await subscribed(ann, "presence-busy"), await subscribed(client("bob"), "presence-busy")];
    const seen = quietly(two, "client-n");
    const over = next(ann.connection, "error", ({ data }) => data?.code === 4301 || data?.data?.code === 4301);
    for (let n = 0; n < 30; n += 1) one.trigger("client-n", { n });
    await over;
    assert.equal(ann.connection.state, "connected");
    assert.ok(seen.length <= 15, `${seen.length} events`);
    // Echo of the own event, public channels and other names are refused.
    const news = await subscribed(ann, "news");
    const error = next(ann.connection, "error");
    await sleep(1_000);
    news.trigger("client-x", {});
    await error;
    const full = client("cleo");
    const refused = await next(full.subscribe("presence-busy"), "pusher:subscription_error");
    assert.equal(refused.type, "LimitReached");
    await assert.rejects(server.trigger("news", "big", "x".repeat(20_000)));
  },

  async codes() {
    const unknown = new Pusher("no-such-key", options("ann", {}));
    open.push(unknown);
    const error = next(unknown.connection, "error", ({ error: cause }) => cause?.data?.code === 4001);
    await next(unknown.connection, "disconnected");
    await error;
    const down = client("ann");
    await next(down.connection, "connected");
    const stranger = new PusherServer({ ...app, secret: "another secret of app", host: "127.0.0.1", port: httpPort, useTLS: false });
    await assert.rejects(stranger.trigger("news", "x", {}), (reason) => reason.status === 401);
  },

  async http() {
    const ann = client("ann");
    await subscribed(ann, "presence-a");
    await subscribed(ann, "news");
    await subscribed(client("bob"), "presence-a");
    await subscribed(client("cleo"), "news");
    const read = async (path, params) => (await server.get({ path, params })).json();
    assert.deepEqual((await read("/channels")).channels, { news: {}, "presence-a": {} });
    const counted = await read("/channels", { filter_by_prefix: "presence-", info: "user_count" });
    assert.deepEqual(counted.channels, { "presence-a": { user_count: 2 } });
    const one = await read("/channels/news", { info: "subscription_count" });
    assert.deepEqual(one, { occupied: true, subscription_count: 2 });
    assert.deepEqual(await read("/channels/nothing"), { occupied: false });
    await assert.rejects(server.get({ path: "/channels/news/users" }), (reason) => reason.status === 400);
    const answer = await server.trigger("presence-a", "x", {}, { info: "user_count,subscription_count" });
    assert.deepEqual(await answer.json(), { channels: { "presence-a": { user_count: 2, subscription_count: 2 } } });
  },

  async echo() {
    const make = (user) => {
      const echo = new Echo({
        broadcaster: "reverb",
        Pusher,
        key: app.key,
        wsHost: "127.0.0.1",
        wsPort: Number(port),
        forceTLS: false,
        enabledTransports: ["ws"],
        authorizer: (channel) => ({
          authorize: (socketId, done) =>
            done(null, server.authorizeChannel(socketId, channel.name, channel.name.startsWith("presence-")
              ? { user_id: user, user_info: { id: user, name: `Name ${user}` } } : undefined)),
        }),
      });
      open.push(echo.connector.pusher);
      return echo;
    };
    const [ann, bob] = [make(1), make(2)];
    const here = within(new Promise((resolve) => ann.join("room.5").here(resolve)), "here");
    assert.deepEqual(await here, [{ id: 1, name: "Name 1" }]);
    const joining = within(new Promise((resolve) => ann.join("room.5").joining(resolve)), "joining");
    const both = within(new Promise((resolve) => bob.join("room.5").here(resolve)), "here");
    assert.deepEqual((await both).map(({ id }) => id).sort(), [1, 2]);
    assert.deepEqual(await joining, { id: 2, name: "Name 2" });
    const typing = within(new Promise((resolve) => bob.join("room.5").listenForWhisper("typing", resolve)), "whisper");
    ann.join("room.5").whisper("typing", { name: "Ann" });
    assert.deepEqual(await typing, { name: "Ann" });
    const shipped = within(new Promise((resolve) => bob.private("orders").listen("OrderShipped", resolve)), "event");
    await until(() => bob.connector.channels["private-orders"]?.subscription.subscribed, "private channel");
    await server.trigger("private-orders", "App\\Events\\OrderShipped", { order: 9 });
    assert.deepEqual(await shipped, { order: 9 });
    const leaving = within(new Promise((resolve) => ann.join("room.5").leaving(resolve)), "leaving");
    bob.disconnect();
    assert.equal((await leaving).id, 2);
  },

  async counts() {
    const one = await subscribed(client("ann"), "news");
    const counted = next(one, "pusher:subscription_count", (data) => data.subscription_count === 2);
    await subscribed(client("bob"), "news");
    assert.deepEqual(await counted, { subscription_count: 2 });
  },

  // Waits for a line of the test that runs it, and prints what it sees as JSON lines.
  async watch() {
    const [user, name] = process.argv.slice(3);
    const pusher = client(user, { name: user });
    const say = (what, data) => process.stdout.write(`${JSON.stringify({ what, data })}\n`);
    pusher.connection.bind("state_change", ({ current }) => say("state", current));
    pusher.connection.bind("error", (error) => say("error", error?.data ?? error?.type ?? null));
    const channel = pusher.subscribe(name);
    channel.bind("pusher:subscription_succeeded", (members) => say("here", Object.keys(members?.members ?? {}).sort()));
    channel.bind("pusher:member_added", ({ id }) => say("added", id));
    channel.bind("pusher:member_removed", ({ id }) => say("removed", id));
    channel.bind_global((event, data) => event.startsWith("pusher:") || say(event, data));
    for await (const line of (await import("node:readline")).createInterface({ input: process.stdin })) {
      const [event, data] = JSON.parse(line);
      channel.trigger(event, data);
    }
  },

  async webhooks() {
    const seen = [];
    const receiver = createServer(async (request, response) => {
      let body = "";
      for await (const chunk of request) body += chunk;
      const hook = server.webhook({ headers: request.headers, rawBody: body });
      if (!hook.isValid()) seen.push({ name: "invalid" });
      else seen.push(...hook.getEvents());
      response.statusCode = seen.length === 1 && !receiver.failed ? ((receiver.failed = true), (seen.length = 0), 500) : 200;
      response.end();
    });
    receiver.listen(Number(process.env.HOOK_PORT), "127.0.0.1");
    await once(receiver, "listening");
    const ann = client("ann");
    const channel = await subscribed(ann, "presence-hooked");
    channel.trigger("client-hi", { n: 1 });
    await next(client("bob").subscribe("cache-empty"), "pusher:cache_miss");
    const has = (name, channelName) => seen.some((event) => event.name === name && event.channel === channelName);
    await until(() => has("channel_occupied", "presence-hooked"), "channel_occupied");
    await until(() => has("member_added", "presence-hooked"), "member_added");
    await until(() => has("client_event", "presence-hooked"), "client_event");
    await until(() => has("cache_miss", "cache-empty"), "cache_miss");
    ann.disconnect();
    await until(() => has("member_removed", "presence-hooked"), "member_removed");
    await until(() => has("channel_vacated", "presence-hooked"), "channel_vacated");
    assert.ok(!seen.some(({ name }) => name === "invalid"));
    receiver.close();
  },
};

const [scenario] = process.argv.slice(2);
await scenarios[scenario]();
for (const pusher of open) pusher.disconnect();
process.exit(0);
