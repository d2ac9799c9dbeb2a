"""The hostile mode's attacks. Each returns a detail when it succeeded and raises
when it failed. Success means that the real canary was reached: a file made anew
in a private home, or a proxy that accepts and refuses, is none.

Run as "python -m hermes_agent.attacks PART"."""

import errno
import json
import subprocess
import sys

from . import file_attacks, kernel_attacks, name_attacks, process_attacks, socket_attacks
from .target import workspace


def leave_daemon(part):
    """Starts a process in a session of its own; whether it outlives the agent is
    seen from outside, so this gives no result."""
    script = ("import sys,time\n"
              "for n in range(200):\n"
              "    with open(sys.argv[2],'a') as f: f.write('x')\n"
              "    time.sleep(0.1)\n")
    subprocess.Popen([sys.executable, "-c", script, "hw-daemon", workspace(".daemon-" + part)],
                     stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                     start_new_session=True)


def attacks():
    """Every attack by name."""
    return {**file_attacks.ATTACKS, **name_attacks.ATTACKS, **socket_attacks.attacks(), **process_attacks.ATTACKS,
            **kernel_attacks.attacks()}


def run(part, via="python"):
    """Returns one result an attack: {part, via, attack, outcome, detail}."""
    results = []
    leave_daemon(part)
    for name, attack in attacks().items():
        result = {"part": part, "via": via, "attack": name, "outcome": "failed"}
        try:
            result["detail"] = str(attack())
            result["outcome"] = "succeeded"
        except OSError as error:
            result["errno"] = errno.errorcode.get(error.errno, type(error).__name__)
            result["detail"] = str(error)
        except Exception as error:  # a result like any other
            result["detail"] = "%s: %s" % (type(error).__name__, error)
        results.append(result)
    return results


if __name__ == "__main__":
    for line in run(sys.argv[1]):
        print(json.dumps(line), flush=True)
