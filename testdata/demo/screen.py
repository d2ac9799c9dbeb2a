"""What the demo prints: short lines, colours at a terminal only."""

import os
import sys
import textwrap

COLOURS = {"good": "32", "bad": "31", "dim": "2", "bold": "1"}


class Screen:
    def __init__(self, stream=sys.stdout):
        self.stream = stream
        self.coloured = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self.width = min(100, os.get_terminal_size(stream.fileno()).columns) if stream.isatty() else 100

    def paint(self, text, colour):
        return "\033[%sm%s\033[0m" % (COLOURS[colour], text) if self.coloured else text

    def line(self, text=""):
        self.stream.write(text + "\n")
        self.stream.flush()

    def heading(self, text):
        self.line()
        self.line(self.paint(text, "bold"))

    def command(self, words):
        self.line("  $ " + " ".join(words))

    def say(self, text):
        for part in wrap(text, self.width - 2):
            self.line("  " + part)

    def item(self, word, text, note="", colour="good"):
        """A word that says how it went, what it was, and why below it."""
        self.line("  %s %s" % (self.paint("%-7s" % word, colour), text))
        for part in wrap(note, self.width - 10):
            self.line(self.paint("          " + part, "dim"))


def wrap(text, width):
    """Paths and rules stay whole, so that they can be copied."""
    return textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)
