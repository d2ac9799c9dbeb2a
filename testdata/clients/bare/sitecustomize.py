"""For the bare run: every name ending in .test is 127.0.0.1."""
import socket

_getaddrinfo = socket.getaddrinfo


def _local(host, *args, **kwargs):
    name = host.decode() if isinstance(host, bytes) else host
    return _getaddrinfo("127.0.0.1" if name and name.endswith(".test") else host, *args, **kwargs)


socket.getaddrinfo = _local
