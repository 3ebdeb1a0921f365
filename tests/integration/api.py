"""The HTTP API as a client sees it: requests, streams and their events, strictly read."""
import http.client
import json
import re
import select
import socket
import threading

from cluster import PATIENCE, wait_until

LONG = {"prompt": "hello", "temperature": 0, "max_tokens": 30000}
JSON = {"Content-Type": "application/json"}


class Api:
    """One server's API; every request on a connection of its own."""

    def __init__(self, process, model):
        self.process = process
        self.port = int(process.wait_log(r"OpenAI-compatible API at http://127\.0\.0\.1:(\d+)/v1").group(1))
        self.model = model

    def open(self, method, path, body=None, headers=JSON, timeout=60):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout * PATIENCE)
        c.request(method, path, body, headers)
        return c.getresponse()

    def call(self, method, path, body=None, headers=JSON):
        """Returns (status, parsed JSON)."""
        r = self.open(method, path, body, headers)
        data = r.read()
        assert r.getheader("Content-Type") == "application/json", data
        assert int(r.getheader("Content-Length")) == len(data)
        assert not [h for h, _ in r.getheaders() if h.lower().startswith("access-control")]
        return r.status, json.loads(data)

    def post(self, path, **fields):
        return self.call("POST", path, json.dumps({"model": self.model, **fields}))

    def complete(self, **fields):
        status, body = self.post("/v1/completions", **fields)
        assert status == 200, body
        return body

    def chat(self, text, **fields):
        status, body = self.post("/v1/chat/completions", messages=[{"role": "user", "content": text}], **fields)
        assert status == 200, body
        return body

    def stream(self, path, **fields):
        """Returns the response of a stream, of which nothing is read yet."""
        r = self.open("POST", path, json.dumps({"model": self.model, "stream": True, **fields}))
        assert (r.status, r.getheader("Content-Type")) == (200, "text/event-stream; charset=utf-8"), r.read()
        return r

    def stream_all(self, path, **fields):
        return events(self.stream(path, **fields).read())

    def raw(self, data, timeout=20, quiet=20):
        """Sends bytes, and returns what comes until the server closes, or nothing for so many seconds: before the first byte, after it."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout * PATIENCE) as s:
            s.sendall(data)
            out = b""
            while select.select([s], [], [], (quiet if out else timeout) * PATIENCE)[0]:
                try:
                    part = s.recv(65536)
                except ConnectionResetError:
                    break
                if not part:
                    break
                out += part
            return out

    def health(self):
        return self.call("GET", "/health")[1]

    def wait_quiet(self, seconds=3):
        def quiet():
            h = self.health()
            return h["active"] == 0 and h["waiting"] == 0
        wait_until(quiet, seconds, "no request under way")


def events(data, after=0):
    """The events of a stream to its end: parsed JSON, or "[DONE]". Strict about everything but comments: each has the number that follows."""
    out = []
    text = data.decode("utf-8")
    assert text.endswith("\n\n") or text == ""
    for block in text.split("\n\n")[:-1]:
        if block.startswith(":"):
            assert "\n" not in block
            continue
        m = re.fullmatch(r"id: (\d+)\ndata: ([^\n]*)", block)
        assert m and int(m.group(1)) == after + len(out) + 1, block
        out.append("[DONE]" if m.group(2) == "[DONE]" else json.loads(m.group(2)))
    return out


def same(hearth):
    """The "hearth" object of an answer, without what differs between two requests for the same."""
    assert re.fullmatch("[0-9a-f]{32}", hearth["request"])
    return {k: v for k, v in hearth.items() if k != "request"}


def texts(evs, chat):
    """What a stream's events say, after checking their form."""
    assert evs[-1] == "[DONE]"
    out = []
    for e in evs[:-1]:
        assert e["object"] == ("chat.completion.chunk" if chat else "text_completion")
        assert {k: e[k] for k in ("id", "created", "model", "system_fingerprint")} == {
            k: evs[0][k] for k in ("id", "created", "model", "system_fingerprint")}
        for c in e["choices"]:
            out.append(c["delta"].get("content", "") if chat else c["text"])
    return out


class Reader(threading.Thread):
    """Reads a response to its end in the background: what it said is in text() then."""

    def __init__(self, response):
        super().__init__(daemon=True)
        self.response = response
        self.data = b""
        self.start()

    def run(self):
        try:
            while part := self.response.read1(65536):
                self.data += part
        except (OSError, http.client.HTTPException):
            pass  # closed by the test

    def text(self):
        self.join(20 * PATIENCE)
        assert not self.is_alive(), "the stream does not end"
        return self.data.decode()


def in_parallel(n, work):
    """Runs work(i) for each i at the same time; returns the results in order, or raises what one of them raised."""
    results, failures = [None] * n, []

    def one(i):
        try:
            results[i] = work(i)
        except BaseException as e:
            failures.append(e)
    threads = [threading.Thread(target=one, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failures:
        raise failures[0]
    return results
