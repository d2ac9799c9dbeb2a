"""Runs the agent's job bare and wrapped, and prints one JSON object: for each
case {bare, wrapped} with exit code and checks; what the provider and the audit
record saw of the wrapped ones; the commits; and which canaries were touched.

Usage: job.py TESTDATA BIN"""

import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(sys.argv[1], "demo"))
import world  # noqa: E402 (its directory has to be on the path first)

TASK = ["-z", "write the result and commit it"]
CASES = {
    "task": (TASK + ["--usage-file", "usage.json"], {}),
    "no_task": ([], {}),
    "wrong_key": (["--check", "tool_loop"], {"OPENROUTER_API_KEY": "wrong-key"}),
}
# timeout(1) signals the wrapper and then waits for it.
INTERRUPTED = 'timeout -s INT 3 "$@" --check proc --hold'


def plain_provider(place):
    """Bare, the name openrouter.ai leads nowhere, so there it is an address."""
    provider = subprocess.Popen([world.canaries.python(), os.path.join(sys.argv[1], "provider", "provider.py")],
                                env=dict(place.environment, PROVIDER_KEY=world.KEY), stdout=subprocess.PIPE, text=True)
    return provider, provider.stdout.readline().strip()


def run(place, words, environment):
    saved, place.environment = place.environment, dict(place.environment, **environment)
    done = place.run(words)
    place.environment = saved
    checks = [json.loads(line) for line in done.stderr.splitlines() if line.startswith('{"check"')]
    return {"exit": done.returncode, "checks": checks, "answer": done.stdout.strip(), "errors": done.stderr[-2000:]}


def main():
    place = world.World(sys.argv[2])
    provider, url = plain_provider(place)
    bare = {"OPENAI_BASE_URL": url}
    out = {"cases": {}}
    try:
        for name, (arguments, environment) in CASES.items():
            out["cases"][name] = {"bare": run(place, ["hermes", *arguments], dict(bare, **environment)),
                                  "wrapped": run(place, place.wrapped(*arguments), environment)}
        shell = ["bash", "-c", INTERRUPTED, "interrupted"]
        out["cases"]["interrupted"] = {"bare": run(place, shell + ["hermes"], bare),
                                       "wrapped": run(place, shell + place.wrapped(), {})}
        out["events"] = place.decisions()
        with open(place.log) as file:
            out["requests"] = [json.loads(line) for line in file]
        out["commits"] = subprocess.run(
            ["git", "-c", "safe.directory=*", "log", "--format=%s"], cwd=place.workspace, check=True,
            stdout=subprocess.PIPE, text=True).stdout.split("\n")
        out["touched"] = [name for name, ok, _ in place.canaries.checks() if not ok]
    finally:
        provider.terminate()
        provider.wait()
        place.close()
    json.dump(out, sys.stdout)


main()
