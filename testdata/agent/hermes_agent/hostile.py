"""Hostile mode: each part of the agent tries to leave, from inside that part."""

import json
import os
import sys

from . import kernel, mcp, terminal
from .extensions import Extensions
from .report import expect

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
SHELL = os.path.join(HERE, "attacks.sh")
SERVER = os.path.join(HERE, "mcp_server.js")


def in_terminal(home, workspace):
    shell = terminal.Terminal(home, workspace)
    lines = shell.run("PYTHONPATH=%s %s -m hermes_agent.attacks terminal; bash %s terminal" % (
        terminal.quote(ROOT), terminal.quote(sys.executable), terminal.quote(SHELL)))["output"]
    shell.close()
    return parse(lines)


def in_code(home, workspace):
    child = kernel.Kernel(lambda name, arguments: None)
    answer = child.execute("import json\nfrom hermes_agent import attacks\n"
                           "for line in attacks.run('code'): print(json.dumps(line))")
    child.close()
    expect(not answer["error"], answer["error"])
    return parse(answer["output"])


def in_mcp(home, workspace):
    passed = {name: value for name, value in os.environ.items() if name.startswith("HW_CANARY_")}
    server = mcp.Server(SERVER, dict(passed, HERMES_HOME=home, HW_PYTHON=sys.executable, PYTHONPATH=ROOT))
    lines = server.call("attack", {}, timeout=180)
    server.close()
    return parse(lines)


def in_plugin(home, workspace):
    plugins = [plugin for plugin in Extensions(home).plugins if hasattr(plugin, "attack")]
    expect(plugins, "no plugin in " + home)
    return plugins[0].attack()


def in_hook(home, workspace):
    results = []
    for answer in Extensions(home).fire("attack", {}, SHELL):
        results += parse(answer) if isinstance(answer, str) else answer
    return results


PARTS = {"terminal": in_terminal, "code": in_code, "mcp": in_mcp, "plugin": in_plugin, "hook": in_hook}


def parse(lines):
    results = []
    for line in lines.splitlines():
        try:
            results.append(json.loads(line))
        except ValueError:
            results.append({"attack": "unreadable", "outcome": "unknown", "detail": line})
    return results


def run(part, home, workspace, canaries, out):
    """Prints one JSON line an attack. 0 when every part could try, else 2."""
    if canaries:
        with open(canaries) as file:
            os.environ.update({name: value for name, value in json.load(file)["env"].items()
                               if name.startswith("HW_CANARY_")})
    os.environ.setdefault("HW_CANARY_DOCKER", "/var/run/docker.sock")
    os.environ.setdefault("HW_CANARY_WORKSPACE", workspace)
    os.environ["HERMES_HOME"] = home
    os.environ["HW_CANARY_AGENT_PID"] = str(os.getpid())
    status = 0
    for name in list(PARTS) if part == "all" else [part]:
        try:
            results = PARTS[name](home, workspace)
        except Exception as error:  # a part that cannot start proves nothing
            results = [{"part": name, "attack": "start", "outcome": "unknown",
                        "detail": "%s: %s" % (type(error).__name__, error)}]
        for result in results:
            status = 2 if result["outcome"] == "unknown" else status
            out.write(json.dumps(dict(result, part=name)) + "\n")
        out.flush()
    return status
