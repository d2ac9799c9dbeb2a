"""Plugins and hooks from the state directory: Python ones are imported into
this interpreter, shell hooks run as children."""

import importlib.util
import json
import os
import subprocess

from .report import expect


def load(path):
    name = "hermes_ext_" + os.path.basename(path)[:-3]
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Extensions:
    def __init__(self, home):
        self.home = home
        self.plugins = self.modules("plugins")
        self.hooks = self.modules("hooks")
        directory = os.path.join(home, "hooks")
        self.shell = [os.path.join(directory, name) for name in listed(directory) if name.endswith(".sh")]

    def modules(self, kind):
        directory = os.path.join(self.home, kind)
        return [load(os.path.join(directory, name)) for name in listed(directory) if name.endswith(".py")]

    def fire(self, event, payload, *arguments):
        """Returns what each hook answered; a shell hook gets JSON on stdin."""
        answers = [hook.handle(event, payload) for hook in self.hooks]
        for script in self.shell:
            done = subprocess.run([script, event, *arguments], input=json.dumps(payload), text=True,
                                  stdout=subprocess.PIPE, timeout=120)
            expect(done.returncode == 0, "%s ended with %d" % (script, done.returncode))
            answers.append(done.stdout)
        return answers


def listed(directory):
    return sorted(os.listdir(directory)) if os.path.isdir(directory) else []
