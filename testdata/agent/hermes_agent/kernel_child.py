"""The child of the code-execution tool. See kernel.py."""

import contextlib
import io
import os
import socket
import sys
import threading
import traceback

from .kernel import read_frame, write_frame


def watch(fd):
    """Ends this process when the agent is gone."""
    os.read(fd, 1)
    os._exit(0)


def call(name, **arguments):
    """Asks the agent to run one of its tools."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(os.environ["HERMES_RPC_SOCKET"])
        with connection.makefile("rwb") as stream:
            write_frame(stream, {"token": os.environ["HERMES_RPC_TOKEN"], "name": name, "arguments": arguments})
            return read_frame(stream)["result"]


def main():
    threading.Thread(target=watch, args=(int(os.environ["HERMES_DEATH_FD"]),), daemon=True).start()
    names = {"call": call, "__name__": "__kernel__"}
    frames = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            request = read_frame(sys.stdin.buffer)
        except EOFError:
            return
        output, error = io.StringIO(), None
        with contextlib.redirect_stdout(output):
            try:
                exec(compile(request["code"], "<code>", "exec"), names)
            except BaseException:
                error = traceback.format_exc()
        write_frame(frames, {"output": output.getvalue(), "error": error})


main()
