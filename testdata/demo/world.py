"""The demo's world: canaries, a provider, a home directory, all temporary."""

import json
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TESTDATA = os.path.dirname(HERE)
sys.path.insert(0, os.path.join(TESTDATA, "agent"))
import canaries  # noqa: E402 (its directory has to be on the path first)

KEY = "provider-key-of-32-characters-000"
PORT_ROUTE = """
inference:
  routes:
    # This machine lets nobody but root listen on port 443.
    - name: inference-here
      provider: openai-compatible
      host: openrouter.ai
      port: %d
      base: /api/v1
      credential: openrouter
"""


class World:
    def __init__(self, binary, agent=None):
        self.user = canaries.User()
        self.private = True
        try:
            self.user.enter_namespaces()
        except OSError as error:
            self.private, self.lack = False, str(error)
        self.canaries = canaries.Canaries(self.user, self.private)
        self.home, self.workspace = self.canaries.home, self.canaries.workspace
        self.root = self.canaries.root
        self.binary = os.path.join(self.root, "hermes-wrap")
        shutil.copy(binary, self.binary)
        self.agent = agent or "hermes"
        self.provider = None
        self.log = os.path.join(self.root, "requests")
        self.environment = dict(os.environ, **self.canaries.env)
        self.environment.update(
            OPENROUTER_API_KEY=KEY, PYTHONDONTWRITEBYTECODE="1", XDG_STATE_HOME=os.path.join(self.root, "state"))
        for name in ("XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "OPENAI_BASE_URL"):
            self.environment.pop(name, None)
        self.start_provider()

    def start_provider(self, steps=None):
        """The certificate is for openrouter.ai, so that the route of hermes-strict
        decides on the name it was written for."""
        config = os.path.join(self.home, ".config", "hermes-wrap")
        os.makedirs(config, exist_ok=True)
        certificate, key = os.path.join(config, "provider.pem"), os.path.join(self.root, "provider.key")
        if not os.path.exists(key):
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                            "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=openrouter.ai",
                            "-addext", "subjectAltName=DNS:openrouter.ai"], check=True, stderr=subprocess.DEVNULL)
        self.stop_provider()
        command = [canaries.python(), os.path.join(TESTDATA, "provider", "provider.py"), "--log", self.log,
                   "--listen", "127.0.0.1:%d" % (443 if self.private else 0), "--cert", certificate, "--cert-key", key]
        if steps:
            script = os.path.join(self.root, "script")
            with open(script, "w") as file:
                json.dump(steps, file)
            command += ["--script", script]
        self.provider = subprocess.Popen(command, env=dict(self.environment, PROVIDER_KEY=KEY), stdout=subprocess.PIPE,
                                         stdin=subprocess.DEVNULL, text=True)
        url = self.provider.stdout.readline().strip()
        if not url:
            raise RuntimeError("the provider did not start")
        self.write_policy(config, int(url.split(":")[2].split("/")[0]))
        canaries.own(config, self.user)

    def write_policy(self, config, port):
        with open(os.path.join(HERE, "policy.yaml")) as file:
            text = file.read()
        if port != 443:
            text = text.replace("ports: [443]", "ports: [%d]" % port) + PORT_ROUTE % port
            self.environment["OPENAI_BASE_URL"] = "https://openrouter.ai:%d/api/v1" % port
        with open(os.path.join(config, "demo.yaml"), "w") as file:
            file.write(text)

    def stop_provider(self):
        if self.provider:
            self.provider.terminate()
            self.provider.wait()

    def wrapped(self, *arguments):
        words = [self.binary, "--quiet", "--policy", "demo"]
        if "OPENAI_BASE_URL" in self.environment:
            words += ["--env", "OPENAI_BASE_URL"]
        return words + ["--", self.agent, *arguments]

    def run(self, words, timeout=300):
        """Runs as the ordinary user, in the workspace."""
        return subprocess.run(words, cwd=self.workspace, env=self.environment, text=True, timeout=timeout,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              preexec_fn=self.user.become)

    def why(self, kind, what):
        """What the binary itself says about one question."""
        done = self.run([self.binary, "why", "--json", "--policy", "demo", "--for", self.agent, kind, what], 30)
        return json.loads(done.stdout) if done.stdout else {"allowed": True, "reason": done.stderr.strip()}

    def decisions(self):
        """The audit record, as a list of events."""
        path = os.path.join(self.root, "state", "hermes-wrap", "audit.jsonl")
        if not os.path.exists(path):
            return []
        done = self.run([self.binary, "audit", "show", "--events", path], 30)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def close(self):
        self.stop_provider()
        self.canaries.close()
