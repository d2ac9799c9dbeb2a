// Asks a model once: client.mjs URL BODY.
const [url, body] = process.argv.slice(2);
const answer = await fetch(url, {
  method: "POST", body,
  headers: { "Content-Type": "application/json", Authorization: "Bearer " + process.env.MODEL_KEY },
});
console.log(answer.status, await answer.text());
