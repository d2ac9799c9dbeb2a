"""The code-execution tool: a persistent child that speaks frames on its
standard streams and calls back over a Unix socket with a token."""

import json
import os
import secrets
import socket
import struct
import subprocess
import sys
import tempfile
import threading

from .report import expect


def write_frame(stream, value):
    data = json.dumps(value).encode()
    stream.write(struct.pack(">I", len(data)) + data)
    stream.flush()


def read_frame(stream):
    head = stream.read(4)
    if len(head) < 4:
        raise EOFError("the other side closed")
    return json.loads(stream.read(struct.unpack(">I", head)[0]))


class Kernel:
    def __init__(self, call):
        """call(name, arguments) serves what the child asks of the agent."""
        self.call = call
        self.token = secrets.token_hex(16)
        self.dir = tempfile.mkdtemp(prefix="hk")
        self.path = os.path.join(self.dir, "rpc")
        self.server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.server.bind(self.path)
        os.chmod(self.path, 0o600)
        self.server.listen(4)
        threading.Thread(target=self.serve, daemon=True).start()
        death, self.alive = os.pipe()
        environment = dict(os.environ, HERMES_RPC_SOCKET=self.path, HERMES_RPC_TOKEN=self.token,
                           HERMES_DEATH_FD=str(death), PYTHONPATH=os.path.dirname(os.path.dirname(__file__)))
        for name in ("OPENAI_API_KEY", "OPENROUTER_API_KEY"):
            environment.pop(name, None)
        self.process = subprocess.Popen([sys.executable, "-m", "hermes_agent.kernel_child"], env=environment,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[death],
                                        start_new_session=True)
        os.close(death)

    def serve(self):
        while True:
            try:
                connection, _ = self.server.accept()
            except OSError:
                return
            with connection, connection.makefile("rwb") as stream:
                request = read_frame(stream)
                peer = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
                if not secrets.compare_digest(request.get("token", ""), self.token) or peer[1] != os.getuid():
                    write_frame(stream, {"error": "refused"})
                    continue
                write_frame(stream, {"result": self.call(request["name"], request["arguments"])})

    def execute(self, code):
        write_frame(self.process.stdin, {"code": code})
        return read_frame(self.process.stdout)

    def close(self):
        """Closing the inherited pipe ends the child; SIGTERM and SIGKILL follow."""
        os.close(self.alive)
        try:
            self.process.wait(timeout=5)
            how = "ended by its pipe"
        except subprocess.TimeoutExpired:
            self.process.terminate()
            how = "ended by SIGTERM"
            try:
                self.process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                how = "ended by SIGKILL"
        self.server.close()
        os.unlink(self.path)
        os.rmdir(self.dir)
        expect(how == "ended by its pipe", how)
        return how
