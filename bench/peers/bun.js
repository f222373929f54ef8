// Bun's own publish (uWebSockets inside): `bun bun.js PORT`. Subscribers come to /sub; the sender is left out by it.
Bun.serve({
  hostname: "127.0.0.1",
  port: Number(process.argv[2]),
  fetch(request, server) {
    const subscribes = new URL(request.url).pathname === "/sub";
    return server.upgrade(request, { data: { subscribes } }) ? undefined : new Response("ready");
  },
  websocket: {
    perMessageDeflate: false,
    idleTimeout: 30, // it asks silent clients by itself before
    open(ws) {
      if (ws.data.subscribes) ws.subscribe("bench");
      ws.send("welcome");
    },
    message(ws, message) {
      ws.publish("bench", message);
    },
  },
});
