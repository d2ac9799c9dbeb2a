"""A plugin: it holds everything that the agent's own process holds."""

import os


def describe():
    return {"name": "stand-in-plugin", "pid": os.getpid()}


def attack():
    from hermes_agent import attacks
    return attacks.run("plugin")
