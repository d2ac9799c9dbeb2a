"""A proxy that dials whatever it is told, as its twin's attack needs one."""
import socket
import sys
import threading


def pump(a, b):
    try:
        while True:
            data = a.recv(65536)
            if not data:
                break
            b.sendall(data)
    except OSError:
        pass
    for s in (a, b):
        try:
            s.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def number(text):
    """A port as careless programs read it."""
    text = text.strip().replace("_", "")
    try:
        return int(text, 0) & 0xffff
    except ValueError:
        return int(text) & 0xffff


def serve(c):
    try:
        head = b""
        while b"\r\n\r\n" not in head:
            got = c.recv(4096)
            if not got:
                return
            head += got
        method, target = head.split(b" ")[:2] if b" " in head else (b"", b"")
        line = head.split(b"\r\n")[0].decode("latin-1")
        if method == b"CONNECT":
            target = line[len("CONNECT "):line.rindex(" HTTP/")]
            host, port = target.rsplit(":", 1)
            up = socket.create_connection((host.split(":")[0].strip("[]") if not host.startswith("[") else host.strip("[]"), number(port)), 3)
            c.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            rest = target.decode("latin-1").split("//", 1)[1]
            host = rest.split("/", 1)[0].split(":")
            up = socket.create_connection((host[0], int(host[1]) if len(host) > 1 else 80), 3)
            up.sendall(head)
        threading.Thread(target=pump, args=(c, up), daemon=True).start()
        pump(up, c)
    except (OSError, ValueError, IndexError):
        pass
    finally:
        c.close()


listener = socket.socket(socket.AF_INET6)
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
listener.bind(("::", int(sys.argv[1])))
listener.listen(64)
while True:
    conn, _ = listener.accept()
    threading.Thread(target=serve, args=(conn,), daemon=True).start()
