"""An agent that does not notice that it turns in circles: loop.py URL. It calls
the model with the same failing tool call again and again."""
import json
import os
import sys
import time
import urllib.error
import urllib.request

messages = [{"role": "user", "content": "build it"}]
for turn in range(50):
    request = urllib.request.Request(
        sys.argv[1], data=json.dumps({"model": "m1", "messages": messages}).encode(),
        headers={"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["MODEL_KEY"]})
    try:
        urllib.request.urlopen(request, timeout=30).read()
    except urllib.error.HTTPError as refused:
        print("refused after", turn, refused.code, json.loads(refused.read())["error"]["message"], flush=True)
        time.sleep(float(sys.argv[2]))
        sys.exit(7)
    call = {"id": "c%d" % turn, "type": "function", "function": {"name": "run", "arguments": "{\"cmd\": \"make\"}"}}
    messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
    messages.append({"role": "tool", "tool_call_id": call["id"], "content": json.dumps({"exit_code": 2, "output": "no rule %d" % turn})})
print("never refused", flush=True)
