// Echoes on PORT over TLS, with the compression that it is asked for.
const https = require("https");
const fs = require("fs");
const { WebSocketServer } = require("ws");

const [port, cert, key] = process.argv.slice(2);
const server = https.createServer({ cert: fs.readFileSync(cert), key: fs.readFileSync(key) });
const sockets = new WebSocketServer({ server, perMessageDeflate: true });
sockets.on("connection", (socket) => {
  socket.on("message", (data, binary) => socket.send(data, { binary }));
  socket.on("error", () => {});
});
server.listen(Number(port), "127.0.0.1");
