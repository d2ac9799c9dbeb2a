// A client of the official SDK: argv is the SDK's directory and the server's
// address. It prints one line for each thing that it does.
const [sdk, url] = process.argv.slice(2);
const { Client } = await import(`${sdk}/dist/esm/client/index.js`);
const { StreamableHTTPClientTransport } = await import(`${sdk}/dist/esm/client/streamableHttp.js`);
const { CreateMessageRequestSchema } = await import(`${sdk}/dist/esm/types.js`);

const client = new Client({ name: "test", version: "1" }, { capabilities: { sampling: {} } });
client.setRequestHandler(CreateMessageRequestSchema, () => ({
  role: "assistant", model: "none", content: { type: "text", text: "sampled" },
}));

async function call(name, args) {
  try {
    const result = await client.callTool({ name, arguments: args });
    return result.content.map((c) => c.text.replaceAll("\n", " ")).join(" ");
  } catch (e) {
    return `error: ${e.message.replaceAll("\n", " ")}`;
  }
}

await client.connect(new StreamableHTTPClientTransport(new URL(url)));
console.log("tools", (await client.listTools()).tools.map((t) => t.name).sort().join(" "));
console.log("echo", await call("echo", { message: "hello there" }));
console.log("other", await call("echo", { message: "other words" }));
console.log("hidden", await call("get-env", {}));
console.log("sum", await call("get-sum", { a: 40, b: 2 }));
console.log("long", await call("trigger-long-running-operation", { duration: 1, steps: 2 }));
console.log("sampling", await call("trigger-sampling-request", { prompt: "p" }));
console.log("again", await call("echo", { message: "hello again" }));
await client.close();
