"""One JSON object a line for each check: {check, ok, detail}."""

import json
import time
import traceback


class Report:
    def __init__(self, path=None, echo=None):
        self.file = open(path, "a", buffering=1) if path else None
        self.echo = echo
        self.failed = []

    def add(self, check, ok, detail=""):
        line = json.dumps({"check": check, "ok": bool(ok), "detail": str(detail)})
        if not ok:
            self.failed.append(check)
        if self.file:
            self.file.write(line + "\n")
        if self.echo:
            self.echo.write(line + "\n")
            self.echo.flush()

    def run(self, check, function, *args):
        """Runs function; what it returns is the detail, what it raises the failure."""
        start = time.monotonic()
        try:
            detail = function(*args)
        except Exception as error:  # every failure of a check is a result
            where = traceback.extract_tb(error.__traceback__)[-1]
            self.add(check, False, "%s: %s (%s:%d)" % (
                type(error).__name__, error, where.filename.rsplit("/", 1)[-1], where.lineno))
            return None
        self.add(check, True, detail if detail is not None else "%.2fs" % (time.monotonic() - start))
        return detail


def expect(condition, message):
    if not condition:
        raise AssertionError(message)
