// Work of a backend, with Web APIs only. runtimes.test.ts runs it in Node, Bun and a global scope without other APIs.

import type * as Sdk from "../../src/index.js";

export interface Given {
  url: string;
  apiKey: string;
  secret: string;
  webhookSecret: string;
  /** Address without a server. */
  nowhere: string;
  /** Prefix of all names, so that runs do not meet. */
  prefix: string;
}

/** Return what a backend observes. It is the same in every runtime. */
export async function scenario(sdk: typeof Sdk, { prefix, nowhere, ...options }: Given): Promise<Record<string, unknown>> {
  const server = new sdk.Server(options);
  const [alice, bob, room] = [`${prefix}-alice`, `${prefix}-bob`, `${prefix}-room`] as const;
  const seen: Record<string, unknown> = {};

  const token = await server.token(alice, { name: "Älice 👋", rooms: ["team-*"], ttl: 60 });
  const claims = JSON.parse(new TextDecoder().decode(Uint8Array.from(atob(token.split(".")[1]!.replaceAll("-", "+").replaceAll("_", "/")), (one) => one.charCodeAt(0))));
  seen["claims"] = [claims.sub === alice, claims.name, claims.rooms, Math.round(claims.exp - claims.iat), typeof claims.jti];

  const settings = await server.putRoom(room, { open: true, receipts: true });
  seen["room"] = [settings.open, settings.receipts, (await server.room(room)).head];
  await server.addMember(room, alice, "admin");
  await server.addMember(room, bob);
  const roles = [];
  for await (const { user, role } of server.everyMember(room)) roles.push([user.slice(prefix.length), role]);
  seen["members"] = roles;

  const sent = await server.send(room, { text: "wörds" }, { user: alice, name: "Alice", key: "first" });
  const again = await server.send(room, { text: "wörds" }, { user: alice, key: "first" });
  await server.react(room, sent.seq, "👍", { user: bob });
  const edit = await server.editMessage(room, sent.seq, { text: "words" }, { by: "mod", reason: "typo" });
  await server.deleteMessage(room, sent.seq, { by: "mod" });
  seen["messages"] = [sent.id === again.id, edit.seq, (await server.messages<{ text: string }>(room, { limit: 1 }))[0]?.op ?? null];
  const operations = [];
  for await (const message of server.everyMessage(room)) operations.push(message.op ?? null);
  seen["operations"] = operations;
  seen["readers"] = [await server.readers(room, sent.seq), (await server.receipts(room)).receipts];
  await server.signalRoom(room, "refresh", { board: 1 }, { from: "app" });
  await server.signalUser(bob, "ring");

  const made = await server.notify(alice, "order.shipped", { order: 17 }, { key: "order-17", importance: "low" });
  const repeated = await server.notify(alice, "order.shipped", { order: 17 }, { key: "order-17" });
  const many = await server.notifyMany([alice, bob].map((user) => ({ user, kind: "news", body: { issue: 9 } })));
  const inbox = await server.inbox(alice, { filter: "unread" });
  seen["inbox"] = [made.new, repeated.new, made.id === repeated.id, many.map((one) => one.new), inbox.unread, inbox.notifications.map((one) => one.kind)];

  await server.setInfo(alice, { name: "Alice", info: { colour: "#06f" } });
  await server.setStatus(alice, "busy", { text: "in a meeting" });
  seen["info"] = await server.info(alice);
  seen["presence"] = (await server.presence([alice, bob])).map((one) => [one.user.slice(prefix.length), one.state, one.name ?? null]);
  await server.setPresenceMode(bob, "poll");
  seen["mode"] = await server.presenceMode(bob);
  seen["contact"] = (await server.addContact(alice, bob, { last_contact_at: 5 })).last_contact_at;
  await server.removeContact(alice, bob);
  await server.removeInfo(alice);
  const online = [];
  for await (const user of server.everybodyOnline()) if (user.startsWith(prefix)) online.push(user);
  seen["online"] = [online, await server.sessions(alice), await server.disconnect("a-session"), await server.typing(room)];

  await server.mute(bob, { room, by: "mod" });
  await server.ban(bob, { reason: "spam" });
  const restricted = [];
  for await (const one of server.mutes({ room })) restricted.push([one.room === room, one.by]);
  for await (const one of server.bans()) if (one.user === bob) restricted.push([one.room, one.reason]);
  await server.unmute(bob, { room });
  await server.unban(bob);
  for await (const one of server.mutes({ room })) restricted.push(one);
  await server.setSlowMode(room, 5);
  await server.archiveRoom(room);
  seen["moderation"] = [restricted, (await server.room(room)).slow_mode_s, (await server.audit({ room, limit: 3 })).map(({ action }) => action)];
  seen["devices"] = (await server.request("GET /v1/users/{user}/devices", { path: { user: alice } })).devices;
  seen["revoked"] = [(await server.revokeUser(alice)).closed, (await server.revokeToken("a-token", { user: alice })).closed];

  seen["errors"] = [
    await failure(() => server.send(room, "late", { user: alice })),
    await failure(() => server.room(`${prefix}-none`)),
    await failure(() => server.room("../x")),
    await failure(() => server.inbox(alice, { limit: 1_000 })),
    await failure(() => server.with({ apiKey: "wrong" }).rooms()),
    await failure(() => server.with({ url: nowhere, retries: 1 }).signalUser(bob, "ring")),
    await failure(() => server.verifyWebhook("{}", new Headers({ "Greendot-Signature": `t=1,v1=${"0".repeat(64)}` }))),
  ];
  await server.deleteRoom(room);
  return JSON.parse(JSON.stringify(seen));
}

async function failure(call: () => Promise<unknown>): Promise<unknown> {
  try {
    return await call();
  } catch (error) {
    const { name, code, status } = error as Sdk.GreendotError;
    return [name, code, status];
  }
}
