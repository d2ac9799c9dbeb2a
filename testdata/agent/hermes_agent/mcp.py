"""A client for one MCP server on standard streams."""

import json
import os
import select
import shutil
import signal
import subprocess

from .report import expect

# The environment of a server is filtered, as Hermes does.
PASSED = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TERM", "SHELL", "TMPDIR")


class Server:
    def __init__(self, script, extra=None):
        node = shutil.which("node")
        expect(node, "node is not installed")
        self.command = [node, script]
        self.environment = {name: os.environ[name] for name in PASSED if name in os.environ}
        self.environment.update(extra or {})
        self.restarts = -1
        self.next_id = 0
        self.start()

    def start(self):
        self.restarts += 1
        self.process = subprocess.Popen(self.command, env=self.environment, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, start_new_session=True)
        hello = self.request("initialize", {"protocolVersion": "2025-06-18", "capabilities": {},
                                            "clientInfo": {"name": "hermes-stand-in", "version": "1"}})
        expect("serverInfo" in hello, "no serverInfo in %r" % hello)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, message):
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def request(self, method, params=None, timeout=60):
        self.next_id += 1
        self.send({"jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params or {}})
        while True:
            ready = select.select([self.process.stdout], [], [], timeout)[0]
            expect(ready, "no answer to %s in %ds" % (method, timeout))
            line = self.process.stdout.readline()
            if not line:
                raise BrokenPipeError("the MCP server is gone")
            answer = json.loads(line)
            if answer.get("id") == self.next_id:
                expect("error" not in answer, answer.get("error"))
                return answer["result"]

    def tools(self):
        return [tool["name"] for tool in self.request("tools/list")["tools"]]

    def call(self, name, arguments, timeout=60):
        """Calls a tool; a server that died is started again, once."""
        params = {"name": name, "arguments": arguments}
        try:
            result = self.request("tools/call", params, timeout)
        except (BrokenPipeError, OSError):
            self.process.wait()
            self.start()
            result = self.request("tools/call", params, timeout)
        return "".join(part["text"] for part in result["content"])

    def die(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
