// Opens each address that follows and says each message that it is given, in
// the form ADDRESS MESSAGE..., and prints what happens.
const { WebSocket } = require("ws");

const [address, ...messages] = process.argv.slice(2);
const options = { handshakeTimeout: 20000 };
if (process.env.CLIENT_DIAL) {
  options.lookup = (_host, o, done) => o.all
    ? done(null, [{ address: process.env.CLIENT_DIAL, family: 4 }])
    : done(null, process.env.CLIENT_DIAL, 4);
}
const socket = new WebSocket(address, options);
socket.on("unexpected-response", (_request, response) => {
  console.log("refused", response.statusCode);
  process.exit(0);
});
socket.on("error", (e) => console.log("error", e.message));
socket.on("open", () => {
  console.log("open");
  socket.ping("are you there");
  socket.send(messages.shift());
});
socket.on("pong", (data) => console.log("pong", data.toString()));
socket.on("message", (data) => {
  console.log("message", data.toString());
  if (messages.length > 0) socket.send(messages.shift());
  else socket.close(1000);
});
socket.on("close", (code) => console.log("close", code));
