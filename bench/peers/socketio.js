// Socket.IO on Node: `node socketio.js PORT`. WebSocket transport only, no compression, bufferutil installed, and the
// upgrade request discarded, as its performance guide recommends.
const http = require("http");
const { Server } = require("socket.io");

const server = http.createServer((_, response) => response.end("ready"));
const io = new Server(server, { transports: ["websocket"], perMessageDeflate: false, serveClient: false, pingInterval: 30_000 });

io.on("connection", (socket) => {
  if (socket.handshake.query.sub) socket.join("bench");
  socket.conn.request = null;
  socket.on("b", (body) => socket.to("bench").emit("b", body));
});
server.listen(Number(process.argv[2]), "127.0.0.1");
