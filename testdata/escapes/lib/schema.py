"""Makes the same mistake at every key that a policy can have.

Usage: schema.py MISTAKE [right]. The keys come from "hermes-wrap schema", so
that none is left out; of the ways to make the mistake each key gets one, by the
seed. Each policy is launched with a command that must not run
("ESCAPED"); what must be said is checked ("BROKEN"). With "right" one policy
without the mistake is launched: the twin.
"""
import json
import os
import random
import re
import subprocess
import sys

WRAP = os.environ["WRAP"]
FILE = os.path.join(os.environ["RUN"], "mistaken.yaml")
CHANCE = random.Random(os.environ.get("SEED", "1"))
COMMAND = ["sh", "-c", 'echo "ESCAPED the command ran"']
DEPTH = 4


def fields(schema, node, path=()):
    """Yields (path, node) for every key. A path holds names, and [] for an
    item of a list; a map with free keys has the key "x"."""
    node = resolve(schema, node)
    if len(path) > 2 * DEPTH:
        return
    if node.get("type") == "array":
        yield from fields(schema, node.get("items", {}), path + ([],))
        return
    for key, sub in sorted(node.get("properties", {}).items()):
        here = path + (key,)
        yield here, resolve(schema, sub)
        yield from fields(schema, sub, here)
    more = node.get("additionalProperties")
    if isinstance(more, dict) and resolve(schema, more).get("properties"):
        yield from fields(schema, more, path + ("x",))


def resolve(schema, node):
    while "$ref" in node:
        node = schema["$defs"][node["$ref"].rsplit("/", 1)[1]]
    for alternative in node.get("oneOf", node.get("anyOf", [])):
        alternative = resolve(schema, alternative)
        if alternative.get("properties"):
            return alternative
    return node


def render(path, value):
    """Writes a policy with one key, and gives its line and column."""
    lines, indent, item = ["version: 1"], 0, ""
    for step in path[:-1]:
        if step == []:
            item = "- "
            continue
        lines.append(" " * indent + item + step + ":")
        indent, item = indent + len(item) + 2, ""
    column = indent + len(item) + 1
    first = " " * indent + item + path[-1] + ":"
    lines.append(first + (" " + value if value else ""))
    return "\n".join(lines) + "\n", len(lines), column


def launch(text):
    with open(FILE, "w", encoding="utf-8") as f:
        f.write(text)
    os.chmod(FILE, 0o600)
    r = subprocess.run([WRAP, "-p", FILE, "--"] + COMMAND, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    sys.stdout.write(r.stdout.decode(errors="replace"))
    return r.returncode, r.stderr.decode(errors="replace")


def expect(text, line, column, what, hint):
    code, err = launch(text)
    if code != 125:
        print("BROKEN exit status", code, "want 125:", repr(text))
    lines = err.splitlines()
    place = "hermes-wrap: error: %s:%d:%s: " % (re.escape(FILE), line, column)
    for i, got in enumerate(lines):
        if re.match(place + ".*" + what, got):
            if hint and not (i + 1 < len(lines) and re.match("hermes-wrap: hint: .*" + hint, lines[i + 1])):
                print("BROKEN no remedy", hint, "below", got, lines[i + 1:i + 2])
            return
    print("BROKEN want", place + what, "got", err)


def swapped(word):
    """A slip of the fingers: the last two different letters change places."""
    for i in range(len(word) - 1, 0, -1):
        if word[i] != word[i - 1]:
            return word[:i - 1] + word[i] + word[i - 1] + word[i + 1:]
    return word + "x"


def misspelt(keys):
    for path, _ in keys:
        beside = [p[-1] for p, _ in keys if p[:-1] == path[:-1]]
        ways = (swapped(path[-1]), path[-1].capitalize(), path[-1].upper(), path[-1] + "_")
        wrong = CHANCE.choice([w for w in ways if w not in beside])
        text, line, column = render(path[:-1] + (wrong,), "{}")
        yield text, line, column, "unknown key", "did you mean|%s" % re.escape(path[-1])


def null(keys):
    for path, _ in keys:
        text, line, column = render(path, CHANCE.choice(("", "null", "~", "Null", "NULL")))
        # The place is the value's, or where it would stand.
        yield text, line, r"\d+", "has no value", "."


def duplicate(keys):
    for path, node in keys:
        value = {"array": "[]", "object": "{}", "boolean": "false", "integer": "1"}.get(node.get("type"), "x")
        again = CHANCE.choice((path[-1], '"%s"' % path[-1], "'%s'" % path[-1]))
        text, line, column = render(path, value)
        spaces = " " * (column - 1)
        yield text + spaces + again + ": " + value + "\n", line + 1, column, "duplicate key, first on line %d" % line, "."


def choice(keys):
    for path, node in keys:
        values = node.get("enum") or node.get("items", {}).get("enum")
        for word in values or []:
            ways = (word.capitalize(), word.upper(), word + "x", "hard-requirement", word + " ", "")
            wrong = CHANCE.choice([w for w in ways if w not in values])
            value = '["%s"]' % wrong if node.get("type") == "array" else '"%s"' % wrong
            text, line, column = render(path, value)
            yield text, line, r"\d+", "unknown value", re.escape(values[0])


WRONG = {
    "array": ["x", "3", "true", '{x: y}', '"[]"'],
    "object": ["x", "3", "true", '[x]', '"{}"'],
    "boolean": ['"true"', "yes", "1", "on", "[true]", "{}", "TRUE", "y"],
    "integer": ['"3"', "x", "[3]", "{}", "-1", "1.5", "0443", "0x1f", "1_000", "1e3", "99999999999999999999", "true", "+1", "0b1", "0o7"],
    "string": ["[x]", "{x: y}", "true", "3", "1.10", "no", "on", "2001-01-01"],
}


def wrongtype(keys):
    for path, node in keys:
        ways = WRONG.get(node.get("type"))
        if ways:
            text, line, column = render(path, CHANCE.choice(ways))
            yield text, line, r"\d+", "", "."


MISTAKES = {f.__name__: f for f in (misspelt, null, duplicate, choice, wrongtype)}


def main():
    if sys.argv[2:] == ["right"]:
        launch(render(("limits", "pids"), "100")[0])
        print("DONE")
        return
    schema = json.loads(subprocess.run([WRAP, "schema"], capture_output=True, check=True).stdout)
    keys = [k for k in fields(schema, schema) if k[0] != ("version",)]  # each policy has that one
    count = 0
    for text, line, column, what, hint in MISTAKES[sys.argv[1]](keys):
        count += 1
        expect(text, line, column, what, hint)
    if len(keys) < 150 or count < 20:
        print("BROKEN only", len(keys), "keys and", count, "mistakes: the schema was not understood")
    print(count, "mistakes at", len(keys), "keys")
    print("DONE")


main()
