"""What an ordinary run does, as named checks that also run alone."""

import asyncio
import json
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request

from . import state
from .hostile import SERVER
from .kernel import Kernel
from .mcp import Server
from .model import Model
from .report import expect
from .extensions import Extensions
from .terminal import Terminal

NOISE = "https://models.dev/api.json https://hermes-agent.nousresearch.com/models https://api.github.com/"


class Agent:
    def __init__(self, home, workspace):
        self.home, self.workspace = home, workspace
        self.model = Model()
        self.made = {}

    def part(self, name, make):
        """Parts start when they are first needed, and once."""
        if name not in self.made:
            self.made[name] = make()
        return self.made[name]

    @property
    def terminal(self):
        return self.part("terminal", lambda: Terminal(self.home, self.workspace))

    @property
    def kernel(self):
        return self.part("kernel", lambda: Kernel(self.call))

    @property
    def mcp(self):
        return self.part("mcp", lambda: Server(SERVER))

    @property
    def extensions(self):
        return self.part("extensions", lambda: Extensions(self.home))

    def call(self, name, arguments):
        """Runs one tool; the answer is what the model sees."""
        tools = {
            "terminal": lambda command, timeout=180: self.terminal.run(command, timeout),
            "terminal_background": lambda command: self.terminal.background(command),
            "process_poll": lambda session_id: self.terminal.poll(session_id),
            "terminal_pty": lambda: self.terminal.pty_job(),
            "execute_code": lambda code: self.kernel.execute(code),
            "mcp_reverse": lambda text: {"text": self.mcp.call("reverse", {"text": text})},
            "write_file": self.write_file,
        }
        if name not in tools:
            return {"error": "no tool " + name}
        self.extensions.fire("before_tool", {"tool": name})
        try:
            return tools[name](**arguments)
        except Exception as error:  # the model sees a failure and goes on
            return {"error": "%s: %s" % (type(error).__name__, error)}

    def write_file(self, path, content):
        target = os.path.join(self.workspace, path)
        with open(target + ".tmp", "w") as file:
            file.write(content)
        os.replace(target + ".tmp", target)
        return {"written": len(content)}

    def converse(self, task, limit=30):
        """The tool loop. Returns the last text and the tools that ran."""
        messages, ran = [{"role": "user", "content": task}], []
        schema = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in (
            "terminal", "terminal_background", "process_poll", "terminal_pty", "execute_code", "mcp_reverse",
            "write_file")]
        for _ in range(limit):
            message = self.model.chat(messages, schema)
            messages.append(message)
            if not message.get("tool_calls"):
                return message["content"], ran
            for call in message["tool_calls"]:
                result = self.call(call["function"]["name"], json.loads(call["function"]["arguments"]))
                ran.append((call["function"]["name"], result))
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": json.dumps(result)})
        raise AssertionError("no end after %d turns" % limit)

    def close(self):
        for part in self.made.values():
            if hasattr(part, "close"):
                part.close()


def launch_chain(agent):
    expect(sys.prefix != sys.base_prefix or os.path.exists(os.path.join(sys.prefix, "pyvenv.cfg")), "not in a venv")
    return "%s -> %s" % (sys.executable, os.path.realpath(sys.executable))


def startup_noise(agent):
    """Hosts that Hermes asks by itself must answer or refuse at once."""
    slow, seen = [], []
    for url in os.environ.get("HERMES_STARTUP_URLS", NOISE).split():
        start = time.monotonic()
        try:
            with urllib.request.urlopen(url, timeout=15) as response:
                seen.append("%s %d" % (url, response.status))
        except Exception as error:  # soft, as in Hermes
            seen.append("%s %s" % (url, error))
        if time.monotonic() - start > 5:
            slow.append(url)
    expect(not slow, "took more than 5 s: %s" % slow)
    return "; ".join(seen)


def shell(agent):
    done = agent.terminal.run("export X=1; cd /; echo out; echo err >&2; exit 3")
    expect(done == {"exit_code": 3, "output": "out\nerr\n"}, done)
    done = agent.terminal.run("echo $PWD; ps -o pid= -p $$ >/dev/null; git --version")
    agent.terminal.cwd = agent.workspace
    expect(done["exit_code"] == 0, done)


def shell_timeout(agent):
    start = time.monotonic()
    done = agent.terminal.run("trap '' TERM; sleep 60 & sleep 61", timeout=1)
    expect(done["exit_code"] == 124, done)
    expect(time.monotonic() - start < 10, "the group outlived its timeout")


def background(agent):
    job = agent.terminal.background("sleep 0.3; echo finished")
    first = agent.terminal.poll(job["session_id"], wait=0)
    expect(first["status"] in ("running", "exited"), first)
    last = agent.terminal.poll(job["session_id"])
    expect(last["output"] == "finished\n" and last["exit_code"] == 0, last)


def pseudo_terminal(agent):
    return agent.terminal.pty_job()["output"]


def code(agent):
    agent.kernel.execute("x = 21")
    answer = agent.kernel.execute("print(x * 2, call('terminal', command='echo by rpc')['output'].strip())")
    expect(answer == {"output": "42 by rpc\n", "error": None}, answer)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
        stranger.connect(agent.kernel.path)
        data = json.dumps({"token": "guess", "name": "terminal", "arguments": {}}).encode()
        stranger.sendall(len(data).to_bytes(4, "big") + data)
        expect(b"refused" in stranger.recv(100), "a wrong token was taken")
    return agent.made.pop("kernel").close()


def mcp(agent):
    expect("reverse" in agent.mcp.tools(), "no tool")
    expect(agent.mcp.call("reverse", {"text": "abc"}) == "cba", "wrong answer")
    agent.mcp.die()
    expect(agent.mcp.call("reverse", {"text": "abcd"}) == "dcba", "wrong answer after a restart")
    expect(agent.mcp.restarts == 1, "%d restarts" % agent.mcp.restarts)
    return "restarted once"


def plugin(agent):
    names = [module.describe()["name"] for module in agent.extensions.plugins]
    expect(names, "no plugin")
    return ", ".join(names)


def hook(agent):
    answers = agent.extensions.fire("check", {"a": 1})
    expect(len(answers) >= 2, "%d hooks answered, want the Python and the shell one" % len(answers))
    return "%d hooks" % len(answers)


def proc(agent):
    for name in ("self/stat", "self/status", "self/cmdline", "self/environ", "meminfo", "uptime", "self/cgroup",
                 "cpuinfo", "self/mountinfo", "loadavg"):
        with open("/proc/" + name, "rb") as file:
            expect(file.read() or name == "self/cgroup", "/proc/%s is empty" % name)
    child = subprocess.Popen(["sleep", "60"])
    with open("/proc/%d/stat" % child.pid) as file:
        expect(file.read().split()[0] == str(child.pid), "a child is not in /proc")
    expect(os.path.exists("/proc/%d/fd/0" % child.pid), "no descriptors of a child in /proc")
    child.kill()
    child.wait()


def pass_descriptor(agent):
    """SCM_RIGHTS and SO_PEERCRED."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        _, descriptors, _, _ = socket.recv_fds(there, 16, 1)
        os.write(descriptors[0], b"passed")
        os._exit(0)
    socket.send_fds(here, [b"x"], [write])
    os.close(write)
    os.waitpid(pid, 0)
    expect(os.read(read, 16) == b"passed", "nothing came through the descriptor")
    os.close(read)
    peer = here.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    expect(int.from_bytes(peer[4:8], sys.byteorder) == os.getuid(), "SO_PEERCRED shows another user")


def square(n):
    return n * n


def processes(agent):
    """asyncio's child watcher and multiprocessing's semaphores in /dev/shm."""
    async def child():
        process = await asyncio.create_subprocess_exec("echo", "async", stdout=asyncio.subprocess.PIPE)
        return (await process.communicate())[0]
    expect(asyncio.run(child()) == b"async\n", "asyncio's child said something else")
    with multiprocessing.get_context("fork").Pool(2) as pool:
        expect(pool.map(square, [2, 3]) == [4, 9], "multiprocessing gave something else")


def models(agent):
    return ", ".join(agent.model.models())


def tool_loop(agent):
    """The whole loop, driven by the model; the last step commits the result."""
    text, ran = agent.converse(agent.task)
    expect(text, "the model's last answer is empty")
    errors = ["%s: %s" % (name, result) for name, result in ran
              if result.get("error") or (result.get("exit_code") or 0) not in (0, 7)]
    expect(not errors, "; ".join(errors))
    agent.answer = text
    return "%d tool calls" % len(ran)


def git_commit(agent):
    with open(os.path.join(agent.workspace, "result.txt")) as file:
        expect("written by the " in file.read(), "result.txt says something else")
    log = subprocess.run(["git", "log", "-1", "--format=%s"], cwd=agent.workspace, stdout=subprocess.PIPE, text=True)
    expect(log.stdout.strip() == "record the result", "last commit: %r" % log.stdout)


def gateway(agent):
    """Start, key check, drain, restart and a bad configuration."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", 8642))
        except OSError:
            probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = dict(os.environ, API_SERVER_KEY="k" * 16, API_SERVER_PORT=str(port), HERMES_HOME=agent.home)
    command = [shutil.which("hermes") or sys.argv[0], "gateway", "run", "--no-supervise"]
    for number, want in ((signal.SIGTERM, 0), (signal.SIGUSR1, 75)):
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        expect("gateway on" in process.stdout.readline(), "the gateway did not start")
        url = "http://127.0.0.1:%d" % port
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        expect(opener.open(url + "/health", timeout=5).status == 200, "/health")
        good = urllib.request.Request(url + "/v1/models", headers={"Authorization": "Bearer " + "k" * 16})
        expect(opener.open(good, timeout=5).status == 200, "the right key was refused")
        try:
            opener.open(url + "/v1/models", timeout=5)
            raise AssertionError("no key was accepted")
        except urllib.error.HTTPError as error:
            expect(error.code == 401, "status %d without a key" % error.code)
        with socket.socket(socket.AF_UNIX) as local:
            local.connect(os.path.join(agent.home, "gateway.sock"))
            local.sendall(b"status\n")
            expect(b"running" in local.recv(200), "the control socket gave no state")
        second = subprocess.run(command, env=environment, stderr=subprocess.DEVNULL).returncode
        expect(second == 78, "a second gateway ended with %d" % second)
        process.send_signal(number)
        process.communicate(timeout=20)
        expect(process.returncode == want, "%s: exit %d, want %d" % (number, process.returncode, want))
    short = subprocess.run(command, env=dict(environment, API_SERVER_KEY="short"), stderr=subprocess.DEVNULL)
    expect(short.returncode == 78, "a short key: exit %d" % short.returncode)
    return "port %d" % port


CHECKS = {
    "launch_chain": launch_chain,
    "state_create": lambda agent: state.create(agent.home),
    "state_inputs": lambda agent: state.inputs(agent.home),
    "state_replace": lambda agent: state.replace(agent.home),
    "state_locks": lambda agent: state.locks(agent.home),
    "sqlite_wal": lambda agent: state.database(agent.home),
    "startup_noise": startup_noise,
    "proc": proc,
    "processes": processes,
    "pass_descriptor": pass_descriptor,
    "plugin": plugin,
    "hook": hook,
    "shell": shell,
    "shell_timeout": shell_timeout,
    "background": background,
    "pty": pseudo_terminal,
    "code": code,
    "mcp": mcp,
    "gateway": gateway,
    "models": models,
    "tool_loop": tool_loop,
    "git_commit": git_commit,
}
