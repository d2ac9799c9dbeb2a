// bridge.mjs SDK PORT COMMAND… offers an MCP server that speaks stdio over
// Streamable HTTP, by the SDK's own transports: one child a session.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
const [sdk, port, command, ...args] = process.argv.slice(2);
const { StreamableHTTPServerTransport } = await import(`${sdk}/dist/esm/server/streamableHttp.js`);
const { StdioClientTransport } = await import(`${sdk}/dist/esm/client/stdio.js`);

const sessions = new Map();
async function open() {
  const child = new StdioClientTransport({ command, args, env: process.env, stderr: "inherit" });
  const front = new StreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    onsessioninitialized: (id) => sessions.set(id, front),
  });
  front.onmessage = (m) => child.send(m);
  child.onmessage = (m) => front.send(m);
  child.onclose = () => front.close();
  front.onclose = () => child.close();
  await child.start();
  await front.start();
  return front;
}

createServer(async (req, res) => {
  const id = req.headers["mcp-session-id"];
  const front = id ? sessions.get(id) : await open();
  if (!front) return res.writeHead(404).end();
  await front.handleRequest(req, res);
}).listen(Number(port), "127.0.0.1", () => console.log("listening"));
