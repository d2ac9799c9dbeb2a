"""The command line of the stand-in, a small part of Hermes'."""

import argparse
import json
import os
import signal
import sys

from . import gateway, hostile, state
from .checks import CHECKS, Agent
from .report import Report


def interrupted(number, frame):
    raise KeyboardInterrupt


def parser():
    p = argparse.ArgumentParser(prog="hermes", description="A stand-in for Hermes, for tests.")
    p.add_argument("-z", "--oneshot", metavar="TASK", help="do one task and print the answer")
    p.add_argument("--usage-file", metavar="FILE", help="write the token counts as JSON")
    p.add_argument("--report", metavar="FILE", help="append one JSON object a check")
    p.add_argument("--check", action="append", metavar="NAME", choices=sorted(CHECKS),
                   help="run this check alone (repeatable)")
    p.add_argument("--hostile", metavar="PART", choices=sorted(hostile.PARTS) + ["all"],
                   help="try to leave, from inside this part")
    p.add_argument("--canaries", metavar="FILE", help="what canaries.py printed")
    p.add_argument("--hold", action="store_true", help="wait for a signal after the checks")
    commands = p.add_subparsers(dest="command")
    run = commands.add_parser("gateway").add_subparsers(dest="action", required=True).add_parser("run")
    run.add_argument("--no-supervise", action="store_true")
    commands.add_parser("dashboard").add_argument("--port", type=int, default=9119)
    return p


def work(arguments, home, workspace):
    """Runs the checks; the exit code is that of "hermes -z"."""
    report = Report(arguments.report, None if arguments.report else sys.stderr)
    agent = Agent(home, workspace)
    agent.task, agent.answer = arguments.oneshot or "check", ""
    try:
        for name in arguments.check or list(CHECKS):
            report.run(name, CHECKS[name], agent)
        if arguments.hold:
            signal.pause()
    except KeyboardInterrupt:
        return 130
    finally:
        agent.close()
        if arguments.usage_file:
            with open(arguments.usage_file, "w") as file:
                json.dump(dict(agent.model.usage, failed=report.failed), file)
    if report.failed:
        sys.stderr.write("hermes: failed: %s\n" % ", ".join(report.failed))
        return 2
    if agent.answer:
        print(agent.answer)
        return 0
    return 0 if arguments.check else 1


def main():
    arguments = parser().parse_args()
    home = os.environ.get("HERMES_HOME") or os.path.expanduser("~/.hermes")
    if arguments.command == "gateway":
        return gateway.run(home)
    if arguments.command == "dashboard":
        return gateway.dashboard(arguments.port)
    signal.signal(signal.SIGINT, interrupted)
    state.create(home)
    if arguments.hostile:
        return hostile.run(arguments.hostile, home, os.getcwd(), arguments.canaries, sys.stdout)
    if arguments.oneshot is None and not arguments.check:
        parser().print_usage(sys.stderr)
        return 2
    return work(arguments, home, os.getcwd())
