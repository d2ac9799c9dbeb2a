"""Asks a model once, as simple programs do: client.py URL BODY."""
import os
import sys
import urllib.error
import urllib.request

request = urllib.request.Request(
    sys.argv[1], data=sys.argv[2].encode(),
    headers={"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["MODEL_KEY"]})
try:
    with urllib.request.urlopen(request, timeout=30) as answer:
        print(answer.status, answer.read().decode())
except urllib.error.HTTPError as refused:
    print(refused.code, refused.read().decode())
