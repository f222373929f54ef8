// `ws` on Node: `node ws.js PORT`. A message is framed once, and the frame is written to all clients, like in Socket.IO.
// ws.send() for each client would build the frame 1,000 times. Pings every 30 s, as its README recommends.
const http = require("http");
const { Sender, WebSocketServer } = require("ws");

const server = http.createServer((_, response) => response.end("ready"));
const wss = new WebSocketServer({ server, perMessageDeflate: false, clientTracking: true });
const subscribers = new Set();

wss.on("connection", (ws, request) => {
  ws.alive = true;
  ws.on("pong", () => (ws.alive = true));
  if (request.url === "/sub") subscribers.add(ws);
  ws.on("close", () => subscribers.delete(ws));
  ws.on("message", (data) => {
    const frame = Buffer.concat(Sender.frame(data, { fin: true, opcode: 1, mask: false, readOnly: true, rsv1: false }));
    for (const other of subscribers) if (other !== ws) other._socket.write(frame);
  });
  ws.send("welcome");
});

setInterval(() => {
  for (const ws of wss.clients) {
    if (!ws.alive) ws.terminate();
    ws.alive = false;
    ws.ping();
  }
}, 30_000);
server.listen(Number(process.argv[2]), "127.0.0.1");
