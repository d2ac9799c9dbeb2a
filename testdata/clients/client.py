"""Requests with urllib: client.py [METHOD URL]…"""
import sys
import urllib.error
import urllib.request

for method, url in zip(sys.argv[1::2], sys.argv[2::2]):
    try:
        answer = urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=20)
    except urllib.error.HTTPError as refused:
        answer = refused
    except OSError as error:
        print(f"{error}\n=== error urllib")
        continue
    print(answer.read().decode())
    print("===", answer.status, "1.1")
