"""A hook that is imported into the agent's process."""


def handle(event, payload):
    if event != "attack":
        return {"hook": "python", "event": event}
    from hermes_agent import attacks
    return attacks.run("hook")
