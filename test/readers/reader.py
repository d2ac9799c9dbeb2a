# Answers questions on lines, see readers.go. It ends with its standard input.
import base64
import ctypes
import json
import struct
import sys
import urllib.parse
import urllib.request

curl = ctypes.CDLL("libcurl.so.4")
curl.curl_url.restype = ctypes.c_void_p
curl.curl_url_cleanup.argtypes = [ctypes.c_void_p]
curl.curl_url_set.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
curl.curl_url_get.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint]
curl.curl_free.argtypes = [ctypes.c_void_p]
URL, HOST, PORT, PATH, QUERY = 0, 5, 6, 7, 8  # enum CURLUPart of curl/urlapi.h
DEFAULT_PORT = 1 << 0

REFUSED = {"Accepted": False}


def reading(host, port, path, query):
    return {
        "Accepted": True, "Host": host, "Port": port, "Path": path, "Query": query,
        "Decoded": base64.b64encode(urllib.parse.unquote_to_bytes(path)).decode(),
    }


def split(text):
    """What http clients on urllib.parse use, and how its servers split targets."""
    try:
        u = urllib.parse.urlsplit(text)
        return reading(u.hostname or "", u.port or 80, u.path or "/", u.query)
    except ValueError:
        return REFUSED


def request(text):
    """What urllib.request connects to and sends."""
    try:
        r = urllib.request.Request(text)
        host, port = r.host or "", 80
        colon = host.rfind(":")  # as http.client splits it
        if colon > host.rfind("]"):
            host, port = host[:colon], int(host[colon + 1:])
        path, _, query = (r.selector or "/").partition("?")
        return reading(host, port, path or "/", query)
    except ValueError:
        return REFUSED


def with_curl(text):
    """What curl sends. A zero byte ends the text for a C program."""
    handle = curl.curl_url()
    try:
        if b"\0" in text or curl.curl_url_set(handle, URL, text, 0) != 0:
            return REFUSED
        parts = []
        for part in (HOST, PORT, PATH, QUERY):
            out = ctypes.c_void_p()
            if curl.curl_url_get(handle, part, ctypes.byref(out), DEFAULT_PORT) != 0:
                parts.append("")
                continue
            parts.append(ctypes.string_at(out.value).decode("latin-1"))
            curl.curl_free(out)
        return reading(parts[0], int(parts[1]), parts[2], parts[3])
    finally:
        curl.curl_url_cleanup(handle)


def form(v):
    if v is None:
        return "null"
    if v is True or v is False:
        return "true" if v else "false"
    if isinstance(v, float):
        return "n" + struct.pack(">d", v + 0.0).hex()
    if isinstance(v, str):
        return "s" + v.encode("utf-8", "surrogatepass").hex()
    if isinstance(v, list):
        return ["list"] + [form(x) for x in v]
    members = [[form(n), form(x)] for n, x in v.items()]
    return ["object"] + sorted(members, key=lambda m: m[0])


def value(text):
    def refuse(name):
        raise ValueError(name)  # NaN and Infinity are no JSON

    try:
        v = json.loads(text, parse_int=float, parse_constant=refuse)
    except (ValueError, RecursionError):
        return REFUSED
    return {"Accepted": True, "Form": form(v)}


for line in sys.stdin.buffer:
    q = json.loads(base64.b64decode(line))
    raw = base64.b64decode(q["text"])
    if q["kind"] == "curl":
        answer = with_curl(raw)
    elif q["kind"] == "json":
        answer = value(raw)
    else:
        answer = (request if q["kind"] == "request" else split)(raw.decode("latin-1"))
    sys.stdout.write(json.dumps(answer, separators=(",", ":")) + "\n")
    sys.stdout.flush()
