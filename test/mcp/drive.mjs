// drive.mjs SDK MODULES WORK drives three servers from npm with the official SDK,
// each over stdio and over Streamable HTTP. One line of JSON a result.
import { spawn } from "node:child_process";
import { createServer } from "node:net";
import { once } from "node:events";
const [sdk, modules, work] = process.argv.slice(2);
const { Client } = await import(`${sdk}/dist/esm/client/index.js`);
const { StdioClientTransport } = await import(`${sdk}/dist/esm/client/stdio.js`);
const { StreamableHTTPClientTransport } = await import(`${sdk}/dist/esm/client/streamableHttp.js`);
const program = (name) => `${modules}/${name}/dist/index.js`;
const here = new URL(".", import.meta.url).pathname;

const say = (o) => console.log(JSON.stringify(o));
const text = (r) => (r.isError ? "error: " : "") + (r.content ?? []).map((c) => c.text ?? c.type).join(" ");
async function attempt(f) {
  try {
    return await f();
  } catch (e) {
    return `error: ${e.message}`;
  }
}

async function freePort() {
  const s = createServer().listen(0, "127.0.0.1");
  await once(s, "listening");
  const { port } = s.address();
  s.close();
  await once(s, "close");
  return port;
}

// What each server is asked. Names of calls are what the test looks for.
const servers = {
  filesystem: {
    args: [program("server-filesystem"), work],
    calls: (way) => [
      ["write", "write_file", { path: `${work}/${way}.txt`, content: `written over ${way}` }],
      ["read", "read_file", { path: `${work}/${way}.txt` }],
      ["list", "list_directory", { path: work }],
      ["outside", "read_file", { path: "/etc/passwd" }],
    ],
  },
  memory: {
    args: [program("server-memory")],
    env: (way) => ({ MEMORY_FILE_PATH: `${work}/memory-${way}.jsonl` }),
    calls: () => [
      ["create", "create_entities", { entities: [{ name: "wrap", entityType: "tool", observations: ["confines"] }] }],
      ["graph", "read_graph", {}],
      ["search", "search_nodes", { query: "confines" }],
    ],
  },
  everything: {
    args: [program("server-everything"), "stdio"],
    http: (port) => ({ args: [program("server-everything"), "streamableHttp"], env: { PORT: String(port) } }),
    calls: () => [
      ["echo", "echo", { message: "hello" }],
      ["sum", "get-sum", { a: 20, b: 22 }],
      ["long", "trigger-long-running-operation", { duration: 1, steps: 3 }],
    ],
  },
};

async function use(name, way, transport) {
  const client = new Client({ name: "drive", version: "1" }, { capabilities: { roots: { listChanged: true } } });
  await client.connect(transport);
  const { tools } = await client.listTools();
  say({ server: name, way, call: "tools", result: tools.map((t) => t.name).sort().join(" ") });
  for (const [call, tool, args] of servers[name].calls(way)) {
    const result = await attempt(async () => text(await client.callTool({ name: tool, arguments: args })));
    say({ server: name, way, call, result });
  }
  await client.close();
}

for (const [name, s] of Object.entries(servers)) {
  const env = (way, more) => ({ ...process.env, ...(s.env?.(way) ?? {}), ...more });
  await use(name, "stdio", new StdioClientTransport({ command: process.execPath, args: s.args, env: env("stdio"), stderr: "ignore" }));
  const port = await freePort();
  const own = s.http?.(port);
  const argv = own ? own.args : [`${here}bridge.mjs`, sdk, String(port), process.execPath, ...s.args];
  const server = spawn(process.execPath, argv, { env: env("http", own?.env), stdio: ["ignore", "pipe", "pipe"] });
  const url = new URL(`http://127.0.0.1:${port}/mcp`);
  for (let i = 0; ; i++) {
    try {
      await fetch(url);
      break;
    } catch (e) {
      if (i > 600 || server.exitCode !== null) throw e;
      await new Promise((r) => setTimeout(r, 50));
    }
  }
  await use(name, "http", new StreamableHTTPClientTransport(url));
  server.kill("SIGKILL"); // on SIGTERM server-everything waits a minute for its streams
  await once(server, "exit");
}
