"""Many ways to do one thing, all tried in one run.

Bare all of them must work, inside none may: a way that fails bare proves
nothing inside, so a part of them is a broken case and said to be one.
"""
import os
import shutil


class Tally:
    def __init__(self):
        self.worked, self.failed = [], []

    def note(self, label, worked):
        """Notes that the way worked, or did not."""
        (self.worked if worked else self.failed).append(label)
        if worked:
            print("ESCAPED", label, flush=True)

    def way(self, label, call, made=None):
        """Tries a way. With made, it worked if that path exists afterwards,
        which is removed for the next one; without, if it raised nothing."""
        try:
            result, why = call(), ""
        except OSError as e:
            result, why = False, str(e)
        worked = os.path.lexists(made) if made else result is not False
        self.note(f"{label} ({result})" if worked and not made else f"{label}: {why}" if why else label, worked)
        if made and worked:
            remove(made)

    def end(self):
        if self.worked and self.failed:
            print("BROKEN these did not work, and others did:", "; ".join(self.failed))
        print("DONE", flush=True)


def remove(path):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)


def write(path, text="x\n", mode="w"):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, mode) as f:
        f.write(text)
