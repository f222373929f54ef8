// Bun's publish (based on uWebSockets): `bun bun.js PORT`. Subscribers connect to /sub. Bun does not deliver to the sender.
Bun.serve({
  hostname: "127.0.0.1",
  port: Number(process.argv[2]),
  fetch(request, server) {
    const subscribes = new URL(request.url).pathname === "/sub";
    return server.upgrade(request, { data: { subscribes } }) ? undefined : new Response("ready");
  },
  websocket: {
    perMessageDeflate: false,
    idleTimeout: 30, // Bun pings silent clients before this time
    open(ws) {
      if (ws.data.subscribes) ws.subscribe("bench");
      ws.send("welcome");
    },
    message(ws, message) {
      ws.publish("bench", message);
    },
  },
});
