"""The gateway: a long-lived service with pid file, lock, control socket and an
HTTP port that insists on a key."""

import fcntl
import hmac
import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import threading

EXIT_FAILED, EXIT_RESTART, EXIT_CONFIG = 1, 75, 78
PLACEHOLDERS = ("changeme", "your-api-key", "placeholder")


class ConfigError(Exception):
    """The configuration cannot work; a restart would not help."""


def parse_config(path):
    """Reads "key: value" lines, which is all that the stand-in writes."""
    config = {}
    if not os.path.exists(path):
        return config
    with open(path) as file:
        for number, line in enumerate(file, 1):
            line = line.split("#")[0].strip()
            if not line:
                continue
            key, colon, value = line.partition(":")
            if not colon or " " in key:
                raise ConfigError("%s:%d: not a setting" % (path, number))
            config[key] = value.strip()
    return config


def api_key(config):
    """The key of the API server, or None when the server is off."""
    key = os.environ.get("API_SERVER_KEY") or config.get("api_server_key", "")
    if not key and "API_SERVER_PORT" not in os.environ:
        return None
    if len(key) < 16 or any(word in key.lower() for word in PLACEHOLDERS):
        raise ConfigError("API_SERVER_KEY needs at least 16 characters and must not be a placeholder")
    return key


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        authorised = self.server.key is None or hmac.compare_digest(self.headers.get("Authorization", ""), "Bearer " + self.server.key)
        if self.path == "/health":
            self.reply(200, {"status": "ok"})
        elif not authorised:
            self.reply(401, {"error": "unauthorized"})
        elif self.path == "/v1/models":
            self.reply(200, {"data": [{"id": "hermes-agent"}]})
        else:
            self.reply(404, {"error": "not found"})

    def reply(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


def notify(text):
    """sd_notify(3), when a supervisor asks for it."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
        connection.sendto(text.encode(), "\0" + address[1:] if address.startswith("@") else address)


def watchdog():
    """How often the supervisor wants a sign of life (seconds)."""
    return int(os.environ.get("WATCHDOG_USEC") or 10_000_000) / 2e6


def chatter(home, interval):
    """Writes numbered lines, and after each its number to a file: what the
    supervisor must have seen when this process is killed."""
    counter = os.open(os.path.join(home, "gateway.lines"), os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    number = 0
    while True:
        os.write(1, b"line %d of %d\n" % (number, os.getpid()))
        os.pwrite(counter, b"%d %d\n" % (os.getpid(), number), 0)
        number += 1
        threading.Event().wait(interval)


def brood():
    """Children that a gateway has: one in its process group, one in a session of
    its own. Both would outlive it."""
    for session in (False, True):
        subprocess.Popen(["sleep", "3601" if session else "3600", os.environ["HERMES_STANDIN_BROOD"]],
                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                         start_new_session=session)


def api_server(key, port):
    """Answers on a port of the loopback; without a key nobody is asked for one."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.key, server.daemon_threads = key, False
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def dashboard(port):
    """A second service beside the gateway, with the same insistence on a key."""
    try:
        server = api_server(api_key({}), port)
    except (ConfigError, OSError) as error:
        sys.stderr.write("hermes dashboard: %s\n" % error)
        return EXIT_CONFIG if isinstance(error, ConfigError) else EXIT_FAILED
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *arguments: ended.set())
    sys.stdout.write("dashboard on 127.0.0.1:%d\n" % port)
    sys.stdout.flush()
    ended.wait()
    server.shutdown()
    sys.stdout.write("dashboard ended\n")
    return 0


def control(server, ended):
    while not ended.is_set():
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            if connection.recv(64).strip() == b"status":
                connection.sendall(json.dumps({"pid": os.getpid(), "state": "running"}).encode() + b"\n")


def lock(home):
    """One gateway a home."""
    fd = os.open(os.path.join(home, "gateway.lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise ConfigError("another gateway runs on " + home)
    return fd


def run(home):
    try:
        config = parse_config(os.path.join(home, "config.yaml"))
        key = api_key(config)
        lock(home)  # kept until the process ends
    except ConfigError as error:
        sys.stderr.write("hermes gateway: %s\n" % error)
        return EXIT_CONFIG
    port = int(os.environ.get("API_SERVER_PORT") or config.get("api_server_port") or 8642)
    server = api_server(key, port) if key else None
    pid_file, path = os.path.join(home, "gateway.pid"), os.path.join(home, "gateway.sock")
    with open(pid_file, "w") as file:
        file.write("%d\n" % os.getpid())
    if os.path.exists(path):
        os.unlink(path)
    local = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    local.bind(path)
    os.chmod(path, 0o600)
    local.listen(4)

    ended, status = threading.Event(), [0]

    def stop(number, frame):
        if number == signal.SIGUSR2:
            os._exit(EXIT_FAILED)  # a crash
        status[0] = EXIT_RESTART if number == signal.SIGUSR1 else 0
        ended.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, stop)
    threading.Thread(target=control, args=(local, ended), daemon=True).start()
    if "HERMES_STANDIN_BROOD" in os.environ:
        brood()
    notify("READY=1\nSTATUS=serving\nMAINPID=%d" % os.getpid())
    sys.stdout.write("gateway on 127.0.0.1:%d\n" % port if server else "gateway without an API server\n")
    sys.stdout.flush()
    if "HERMES_STANDIN_CHATTER" in os.environ:
        threading.Thread(target=chatter, args=(home, float(os.environ["HERMES_STANDIN_CHATTER"])), daemon=True).start()
    while not ended.wait(watchdog()):
        notify("WATCHDOG=1")
    notify("STOPPING=1")
    ended.clear()
    ended.wait(float(os.environ.get("HERMES_STANDIN_DRAIN") or 0))
    if server:
        server.shutdown()
        server.server_close()  # waits for requests that are still being answered
    local.close()
    for name in (path, pid_file):
        os.unlink(name)
    sys.stdout.write("gateway drained\n")
    return status[0]
