#!/usr/bin/env python3
"""A fake inference provider: OpenAI-compatible, streaming, scripted.

It answers POST .../chat/completions, .../models and nothing else, below any
prefix (/v1, /api/v1), over HTTP, or HTTPS with --cert and --cert-key. Requests
must carry the key in PROVIDER_KEY. How many tool results a conversation
already holds decides which step of the script comes next, so the provider keeps
no state and serves many agents at once.

  PROVIDER_KEY=... provider.py [--listen 127.0.0.1:0] [--log FILE] [--script FILE]

Its first line on stdout is the base URL. --log appends one JSON object a
request (the key itself is not in it, only whether it was right). --script is a
JSON list of steps: {"tool": NAME, "arguments": {...}} or {"text": "..."}."""

import argparse
import hmac
import http.server
import json
import os
import ssl
import sys
import threading
import time

SCRIPT = [
    {"tool": "terminal", "arguments": {"command": "pwd && ls -a && uname -s"}},
    {"tool": "terminal_background", "arguments": {"command": "sleep 0.2; echo background done"}},
    {"tool": "process_poll", "arguments": {"session_id": "$session_id"}},
    {"tool": "terminal_pty", "arguments": {}},
    {"tool": "execute_code", "arguments": {"code": "numbers = list(range(10))\nprint(sum(numbers))"}},
    {"tool": "execute_code", "arguments": {"code": "print(call('terminal', command='echo from code')['output'])"}},
    {"tool": "mcp_reverse", "arguments": {"text": "ni-dnats eht yb nettirw"}},
    {"tool": "write_file", "arguments": {"path": "result.txt", "content": "written by the stand-in\n"}},
    {"tool": "terminal", "arguments": {"command":
        "git add result.txt && git -c user.name=Stand-in -c user.email=agent@example.org "
        "commit -q --allow-empty -m 'record the result' && git status --short"}},
    {"text": "The result is in result.txt and committed."},
]


def step(script, messages):
    """The next step, with what an earlier tool answered filled in."""
    results = [message for message in messages if message.get("role") == "tool"]
    chosen = script[min(len(results), len(script) - 1)]
    text = json.dumps(chosen)
    for message in results:
        try:
            answer = json.loads(message["content"])
        except ValueError:
            continue
        if isinstance(answer, dict) and "session_id" in answer:
            text = text.replace("$session_id", answer["session_id"])
    return len(results), json.loads(text)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        ok = self.authorised()
        self.record(ok, None)
        if not ok:
            self.reply(401, {"error": {"message": "invalid key"}})
        elif self.path.endswith("/models"):
            self.reply(200, {"object": "list", "data": [{"id": "nousresearch/stand-in", "context_length": 131072}]})
        else:
            self.reply(404, {"error": {"message": "not found"}})

    def do_POST(self):
        try:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        except ValueError:
            self.reply(400, {"error": {"message": "the body is not JSON"}})
            return
        ok = self.authorised()
        self.record(ok, body)
        if not ok:
            self.reply(401, {"error": {"message": "invalid key"}})
        elif not self.path.endswith("/chat/completions"):
            self.reply(404, {"error": {"message": "not found"}})
        elif not body.get("stream"):
            self.whole(*step(self.server.script, body.get("messages", [])))
        else:
            self.stream(*step(self.server.script, body.get("messages", [])))

    def whole(self, number, chosen):
        message = {"role": "assistant", "content": chosen.get("text")}
        if "tool" in chosen:
            message["tool_calls"] = [{"id": "call_%d" % number, "type": "function", "function": {
                "name": chosen["tool"], "arguments": json.dumps(chosen["arguments"])}}]
        self.reply(200, {"object": "chat.completion", "choices": [
            {"index": 0, "message": message, "finish_reason": "tool_calls" if "tool" in chosen else "stop"}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}})

    def stream(self, number, chosen):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if "tool" in chosen:
            arguments = json.dumps(chosen["arguments"])
            middle = len(arguments) // 2
            self.delta({"role": "assistant", "content": None, "tool_calls": [
                {"index": 0, "id": "call_%d" % number, "type": "function",
                 "function": {"name": chosen["tool"], "arguments": ""}}]})
            for part in (arguments[:middle], arguments[middle:]):
                self.delta({"tool_calls": [{"index": 0, "function": {"arguments": part}}]})
            self.delta({}, "tool_calls")
        else:
            for word in chosen["text"].split(" "):
                self.delta({"content": word + " "})
            self.delta({}, "stop")
        self.event({"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}})
        self.chunk(b"data: [DONE]\n\n")
        self.chunk(b"")

    def delta(self, delta, finish=None):
        self.event({"object": "chat.completion.chunk", "choices": [
            {"index": 0, "delta": delta, "finish_reason": finish}]})

    def event(self, value):
        self.chunk(b"data: " + json.dumps(value).encode() + b"\n\n")

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def authorised(self):
        return hmac.compare_digest(self.headers.get("Authorization", ""), "Bearer " + self.server.key)

    def record(self, ok, body):
        if not self.server.log:
            return
        entry = {"time": time.time(), "method": self.command, "path": self.path, "host": self.headers.get("Host"),
                 "authorised": ok}
        if body is not None:
            entry["model"] = body.get("model")
            entry["tool_results"] = [message["content"] for message in body.get("messages", [])
                                     if message.get("role") == "tool"][-1:]
        with self.server.lock:
            self.server.log.write(json.dumps(entry) + "\n")

    def reply(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


class Server(http.server.ThreadingHTTPServer):
    """Makes the TLS handshake in the connection's own thread."""

    context = None

    def finish_request(self, request, address):
        request.settimeout(60)
        if self.context:
            try:
                request = self.context.wrap_socket(request, server_side=True)
            except OSError:
                return
        super().finish_request(request, address)

    def handle_error(self, request, address):
        pass


def main():
    p = argparse.ArgumentParser(description="A fake inference provider.")
    p.add_argument("--listen", default="127.0.0.1:0", metavar="ADDRESS:PORT")
    p.add_argument("--cert", metavar="PEM")
    p.add_argument("--cert-key", metavar="PEM")
    p.add_argument("--log", metavar="FILE")
    p.add_argument("--script", metavar="FILE")
    arguments = p.parse_args()
    key = os.environ.get("PROVIDER_KEY", "")
    if not key:
        p.error("PROVIDER_KEY is not set")
    address, _, port = arguments.listen.rpartition(":")
    server = Server((address, int(port)), Handler)
    server.key, server.script, server.lock = key, SCRIPT, threading.Lock()
    server.log = open(arguments.log, "a", buffering=1) if arguments.log else None
    if arguments.script:
        with open(arguments.script) as file:
            server.script = json.load(file)
    if arguments.cert:
        server.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.context.load_cert_chain(arguments.cert, arguments.cert_key)
    print("%s://%s:%d/api/v1" % ("https" if arguments.cert else "http", address, server.server_address[1]), flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
