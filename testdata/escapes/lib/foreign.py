"""Clients of the machine that are not the run's own ask its proxy for things."""
import base64
import os
import socket
import sys
from urllib.parse import urlsplit

url, port = urlsplit(sys.argv[1]), int(sys.argv[2])
basic = lambda user, word: b"Proxy-Authorization: Basic " + base64.b64encode(f"{user}:{word}".encode()) + b"\r\n"
user, word = url.username or "sandbox", url.password or "x"
fields = {
    "nothing": b"",
    "an empty one": b"Proxy-Authorization:\r\n",
    "no word": basic(user, ""), "no user": basic("", word) if not url.password else basic("", word[:-1]),
    "another word": basic(user, "0" * len(word)),
    "the word without its end": basic(user, word[:-1]) if url.password else b"",
    "the word with more": basic(user, word + "x") if url.password else b"",
    "the word in capitals": basic(user, word.swapcase()) if url.password and word.swapcase() != word else b"",
    "a bearer": b"Proxy-Authorization: Bearer " + word[:-1].encode() + b"\r\n",
    "two, the wrong first": basic(user, "x") + basic(user, "y"),
    "the wrong field": b"Authorization: Basic " + base64.b64encode(f"{user}:{word}".encode()) + b"\r\n" if url.password else b"",
    "a page's": b"Origin: http://evil.test\r\nReferer: http://evil.test/\r\nSec-Fetch-Mode: cors\r\n",
}
heads = {
    "tunnel": b"CONNECT allowed.test:443 HTTP/1.1\r\nHost: allowed.test:443\r\n%s\r\n",
    "absolute": b"GET http://allowed.test/public/x HTTP/1.1\r\nHost: allowed.test\r\n%s\r\n",
    "post": b"POST http://other.test/x HTTP/1.1\r\nHost: other.test\r\nContent-Length: 0\r\nContent-Type: text/plain\r\n%s\r\n",
}
for who, field in fields.items():
    for what, head in heads.items():
        try:
            s = socket.create_connection(("127.0.0.1", port), 3)
            s.settimeout(3)
            s.sendall(head % field)
            answer = s.recv(4096)
        except OSError:
            continue
        if answer.startswith(b"HTTP/1.1 200"):
            print("ESCAPED", what, "for a client with", who)
