"""The model: an OpenAI-compatible chat completions endpoint with streaming."""

import http.client
import json
import os
import ssl
import urllib.parse

DEFAULT_URL = "https://openrouter.ai/api/v1"


class ModelError(Exception):
    """The endpoint refused; the text is what it said."""


class Model:
    def __init__(self):
        self.base = os.environ.get("OPENAI_BASE_URL") or DEFAULT_URL
        self.key = os.environ.get("OPENROUTER_API_KEY") or os.environ.get("OPENAI_API_KEY") or ""
        self.name = os.environ.get("HERMES_INFERENCE_MODEL") or "nousresearch/stand-in"
        self.usage = {"prompt_tokens": 0, "completion_tokens": 0, "requests": 0}

    def connect(self):
        url = urllib.parse.urlsplit(self.base)
        if url.scheme == "https":
            return http.client.HTTPSConnection(url.hostname, url.port, timeout=30,
                                               context=ssl.create_default_context()), url.path
        return http.client.HTTPConnection(url.hostname, url.port, timeout=30), url.path

    def request(self, method, path, body=None):
        connection, base = self.connect()
        headers = {"Authorization": "Bearer " + self.key, "Accept": "text/event-stream, application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection.request(method, base + path, body, headers)
        response = connection.getresponse()
        if response.status != 200:
            raise ModelError("HTTP %d: %s" % (response.status, response.read(2000).decode("utf-8", "replace")))
        return response

    def models(self):
        return [entry["id"] for entry in json.load(self.request("GET", "/models"))["data"]]

    def chat(self, messages, tools):
        """One turn: returns the assistant's message, assembled from the stream."""
        body = json.dumps({"model": self.name, "messages": messages, "tools": tools, "stream": True,
                           "stream_options": {"include_usage": True}})
        response = self.request("POST", "/chat/completions", body)
        self.usage["requests"] += 1
        text, calls = "", {}
        for line in response:
            line = line.decode("utf-8").strip()
            if not line.startswith("data:"):
                continue
            data = line[5:].strip()
            if data == "[DONE]":
                break
            event = json.loads(data)
            for name in ("prompt_tokens", "completion_tokens"):
                self.usage[name] += (event.get("usage") or {}).get(name, 0)
            for choice in event.get("choices", []):
                delta = choice.get("delta", {})
                text += delta.get("content") or ""
                for part in delta.get("tool_calls", []):
                    call = calls.setdefault(part["index"], {"id": "", "type": "function",
                                                            "function": {"name": "", "arguments": ""}})
                    call["id"] += part.get("id", "")
                    call["function"]["name"] += part.get("function", {}).get("name", "")
                    call["function"]["arguments"] += part.get("function", {}).get("arguments", "")
        else:
            raise ModelError("the stream ended without [DONE]")
        message = {"role": "assistant", "content": text}
        if calls:
            message["tool_calls"] = [calls[index] for index in sorted(calls)]
        return message
