// Requests with fetch: client.mjs [METHOD URL]…
const args = process.argv.slice(2);
for (let i = 0; i + 1 < args.length; i += 2) {
  try {
    const answer = await fetch(args[i + 1], { method: args[i] });
    console.log(await answer.text());
    console.log('===', answer.status, '1.1');
  } catch (error) {
    console.log(String(error.cause ?? error));
    console.log('=== error fetch');
  }
}
