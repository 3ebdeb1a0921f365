"""The HTTP API, as clients and as enemies use it: answers, streams, refusals, clients that leave or do not read.

Most tests use a tiny random model, whose greedy answer to "hello" goes on for a minute; what it says is noise, UTF-8 broken in every way. Those at
the end use the demo model, or nodes.
"""
import http.client
import json
import re
import resource
import signal
import socket
import time

import pytest

from api import JSON, LONG, Api, Reader, events, in_parallel, same, texts
from cluster import MEMORY_ROOM_KIB, PATIENCE, Cluster, wait_until


@pytest.fixture(scope="module")
def shared(hearth, tiny_model, tmp_path_factory):
    c = Cluster(hearth, tiny_model, tmp_path_factory.mktemp("http"))
    yield c
    c.close()


@pytest.fixture
def api(request, shared):
    """A server of the tiny model with two slots, which the tests share; idle before and after each."""
    request.node.hearth_clusters = [shared]
    if not hasattr(shared, "api"):
        shared.api = Api(shared.serve("--ctx", "32768", "--slots", "2", "--threads", "1", http=True), "tiny")
        shared.wait_ready()
    yield shared.api
    shared.api.wait_quiet()
    assert shared.api.process.is_running()


# ---- answers

def test_models_and_health(api):
    status, models = api.call("GET", "/v1/models")
    assert status == 200 and [m["id"] for m in models["data"]] == ["tiny"] and models["object"] == "list"
    assert api.call("GET", "/v1/models/tiny") == (200, models["data"][0])
    for name in ("tiny.gguf", models["data"][0]["id"]):
        assert api.post("/v1/completions", prompt="a", max_tokens=1, **{"model": name})[0] == 200
    assert api.post("/v1/completions", prompt="a", max_tokens=1, **{"model": "tiny.ggu"})[0] == 404
    status, error = api.call("GET", "/v1/models/other")
    assert (status, error["error"]["code"]) == (404, "model_not_found")
    assert api.call("GET", "/health") == (200, {"status": "ok", "model": "tiny", "active": 0, "waiting": 0, "slots": 2})
    r = api.open("HEAD", "/v1/models")
    assert (r.status, r.read()) == (200, b"")


@pytest.mark.covering
@pytest.mark.parametrize("chat", [True, False])
def test_a_stream_says_what_the_answer_in_one_piece_says(api, chat):
    path = "/v1/chat/completions" if chat else "/v1/completions"
    what = {"messages": [{"role": "user", "content": "x"}]} if chat else {"prompt": "x"}
    for seed in range(6):
        options = dict(what, seed=seed, max_tokens=40 + seed, hearth={"logits_hash": True})
        status, whole = api.post(path, **options)
        assert status == 200
        evs = api.stream_all(path, stream_options={"include_usage": True}, **options)
        choice = whole["choices"][0]
        assert "".join(texts(evs, chat)) == (choice["message"]["content"] if chat else choice["text"])
        assert evs[-2]["usage"] == whole["usage"] and evs[-2]["choices"] == []
        assert evs[-3]["choices"][0]["finish_reason"] == choice["finish_reason"]
        assert same(evs[-3]["hearth"]) == same(whole["hearth"]) and whole["hearth"]["seed"] == seed
        assert [e["usage"] for e in evs[:-2]] == [None] * (len(evs) - 2)
        assert all(e["choices"][0]["finish_reason"] is None for e in evs[:-3])
        assert len(whole["hearth"]["logits_hash"]) == 64
        assert len(whole["hearth"]["prompt_ids"]) == whole["usage"]["prompt_tokens"]
        assert len(whole["hearth"]["output_ids"]) == whole["usage"]["completion_tokens"]
        if choice["finish_reason"] == "length":
            assert whole["usage"]["completion_tokens"] == 40 + seed


def test_an_answer_is_the_one_of_hearth_run(api, shared):
    for seed, extra, flags in ((3, {}, []), (4, {"top_k": 5, "temperature": 1.5}, ["--top-k", "5", "--temp", "1.5"]),
                               (5, {"top_p": 0.5, "min_p": 0.01}, ["--top-p", "0.5", "--min-p", "0.01"])):
        body = api.complete(prompt="the cat", seed=seed, max_tokens=20, hearth={"logits_hash": True}, **extra)
        alone = shared.run_alone("the cat", "--seed", seed, *(flags if "--temp" in flags else ["--temp", "1", *flags]), n=20)
        for key in ("prompt_ids", "output_ids", "logits_hash"):
            assert body["hearth"][key] == alone[key], key
        assert body["choices"][0]["text"] == alone["text"]


def test_temperature_and_seed_change_the_answer(api):
    greedy = [api.complete(prompt="hello", temperature=0, seed=s, max_tokens=30)["choices"] for s in (1, 2)]
    assert greedy[0] == greedy[1]
    drawn = {api.complete(prompt="hello", seed=s, max_tokens=30)["choices"][0]["text"] for s in range(4)}
    assert len(drawn) == 4
    assert api.complete(prompt="hello", top_k=1, seed=9, max_tokens=30)["choices"] == greedy[0]


def test_a_seed_that_was_drawn_repeats_the_answer(api):
    first = api.complete(prompt="hello", max_tokens=30, hearth={})
    assert "logits_hash" not in first["hearth"] and 0 <= first["hearth"]["seed"] < 2**53
    again = api.complete(prompt="hello", max_tokens=30, hearth={}, seed=first["hearth"]["seed"])
    assert again["choices"] == first["choices"] and same(again["hearth"]) == same(first["hearth"])
    assert api.complete(prompt="hello", max_tokens=30, hearth={})["hearth"]["seed"] != first["hearth"]["seed"]


def test_a_prompt_as_ids_or_alone_in_an_array_is_the_same_prompt(api):
    text = api.complete(prompt="the cat", temperature=0, max_tokens=10, hearth={})
    for prompt in (["the cat"], text["hearth"]["prompt_ids"], [text["hearth"]["prompt_ids"]]):
        again = api.complete(prompt=prompt, temperature=0, max_tokens=10, hearth={})["hearth"]
        assert same(again) == dict(same(text["hearth"]), seed=pytest.approx(0, abs=2**53))
    assert len(text["hearth"]["output_ids"]) == 10
    assert api.complete(prompt="the cat", temperature=0)["usage"]["completion_tokens"] == 16  # OpenAI's default there


def test_what_a_user_types_becomes_no_control_token(api):
    ids = api.chat("<|im_end|>", max_tokens=1, hearth={})["hearth"]["prompt_ids"]
    plain = api.chat("a", max_tokens=1, hearth={})["hearth"]["prompt_ids"]
    end = api.complete(prompt="<|im_end|>", max_tokens=1, hearth={})["hearth"]["prompt_ids"]
    assert len(end) == 1 and ids.count(end[0]) == plain.count(end[0]) > 0
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert api.chat(parts, max_tokens=1, hearth={})["hearth"]["prompt_ids"] == api.chat("a\nb", max_tokens=1, hearth={})["hearth"]["prompt_ids"]


def test_stop_strings_end_the_answer_wherever_token_borders_are(api):
    whole = api.complete(prompt="hello", temperature=0, max_tokens=60)["choices"][0]["text"]
    pieces = [t for t in texts(api.stream_all("/v1/completions", prompt="hello", temperature=0, max_tokens=60), False) if t]
    assert "".join(pieces) == whole and len(pieces) > 20
    border = len("".join(pieces[:12]))
    for begin, end in ((border - 1, border + 1), (border - 2, border + 2), (border, border + 1), (border - 1, border)):
        stop = whole[begin:end]
        wanted = whole[:whole.index(stop)]
        body = api.complete(prompt="hello", temperature=0, max_tokens=60, stop=stop)
        assert body["choices"][0]["text"] == wanted and body["choices"][0]["finish_reason"] == "stop"
        assert body["usage"]["completion_tokens"] < 60
        evs = api.stream_all("/v1/completions", prompt="hello", temperature=0, max_tokens=60, stop=["never said", stop])
        assert "".join(texts(evs, False)) == wanted and evs[-2]["choices"][0]["finish_reason"] == "stop"
    # A stop string that only begins at the end is text after all.
    body = api.complete(prompt="hello", temperature=0, max_tokens=60, stop=whole[-1] + "never said")
    assert body["choices"][0]["text"] == whole and body["choices"][0]["finish_reason"] == "length"


def test_eight_clients_at_once_get_what_each_gets_alone(api):
    def ask(i):
        return "".join(texts(api.stream_all("/v1/completions", prompt="word %d" % i, seed=i, temperature=0.7, max_tokens=60), False))
    alone = [ask(i) for i in range(8)]
    assert len(set(alone)) == 8
    assert in_parallel(8, ask) == alone


# ---- refusals

@pytest.mark.covering
def test_errors_have_a_status_and_name_the_parameter(api):
    head = '{"model": "tiny", '
    cases = [
        ("/v1/completions", "", 400, None, "invalid_json"),
        ("/v1/completions", "hello", 400, None, "invalid_json"),
        ("/v1/completions", "[]", 400, None, "invalid_json"),
        ("/v1/completions", head + '"prompt": "a", "temperature": NaN}', 400, None, "invalid_json"),
        ("/v1/completions", head + '"prompt": "a", "temperature": 1e999}', 400, None, "invalid_json"),
        ("/v1/completions", head + '"prompt": "a", "temperature": 3e38}', 400, "temperature", "invalid_value"),
        ("/v1/completions", head + '"prompt": "a", "max_tokens": 99999999999999999999}', 400, None, "invalid_json"),
        ("/v1/completions", head + '"prompt": "a", "prompt": "b"}', 400, None, "invalid_json"),
        ("/v1/completions", '{"x":' + "[" * 10000 + "]" * 10000 + "}", 400, None, "invalid_json"),
        ("/v1/completions", '{"a":' * 10000 + "1" + "}" * 10000, 400, None, "invalid_json"),
        ("/v1/completions", head + '"prompt": [1, 2, 320]}', 400, "prompt[2]", "invalid_value"),
        ("/v1/completions", head + '"prompt": ""}', 400, "prompt", "invalid_value"),
        ("/v1/completions", head + '"prompt": "%s"}' % ("ab " * 40000), 400, "prompt", "context_length_exceeded"),
        ("/v1/completions", head + '"prompt": [%s]}' % ",".join(["5"] * 32768), 400, "prompt", "context_length_exceeded"),
        ("/v1/completions", '{"model": "gpt-4", "prompt": "a"}', 404, "model", "model_not_found"),
        ("/v1/completions", head + '"prompt": "a", "tools": []}', 400, "tools", "unknown_parameter"),
        ("/v1/completions", head + '"prompt": "a", "frequency_penalty": 1}', 400, "frequency_penalty", "unsupported_value"),
        ("/v1/chat/completions", head + '"messages": []}', 400, "messages", "invalid_value"),
        ("/v1/chat/completions", head + '"messages": [{"role": "tool", "content": ""}]}', 400, "messages[0].role", "unsupported_value"),
        ("/v1/chat/completions", head + '"messages": [{"role": "user", "content": "%s"}]}' % ("ab " * 40000), 400, "messages", "context_length_exceeded"),
        ("/v1/chat/completions", head + '"messages": [{"role": "assistant", "content": null, "tool_calls": [{"id": "1"}]}]}', 400, "messages[0].tool_calls",
         "unsupported_parameter"),
        ("/v1/embeddings", "{}", 404, None, "not_found"),
        ("/v1/chat/completions/", "{}", 404, None, "not_found"),
    ]
    for path, body, status, param, code in cases:
        got, error = api.call("POST", path, body)
        assert (got, error["error"]["param"], error["error"]["code"]) == (status, param, code), (body[:100], error)
        assert error["error"]["type"] == "invalid_request_error" and error["error"]["message"] and list(error) == ["error"]


def test_a_refused_stream_has_the_status_too(api):
    status, error = api.post("/v1/completions", prompt=[1, 2, 320], stream=True)
    assert (status, error["error"]["param"]) == (400, "prompt[2]")


def test_wrong_methods_and_media_types(api):
    r = api.open("GET", "/v1/completions")
    assert (r.status, r.getheader("Allow")) == (405, "POST")
    r = api.open("OPTIONS", "/v1/models")
    assert (r.status, r.getheader("Allow")) == (405, "GET, HEAD")
    body = json.dumps({"model": "tiny", "prompt": "a", "max_tokens": 1})
    for headers in ({"Content-Type": "text/plain"}, {"Content-Type": "application/jsonp"}, {}):
        status, error = api.call("POST", "/v1/completions", body, headers)
        assert (status, error["error"]["code"]) == (415, "unsupported_media_type")
    assert api.call("POST", "/v1/completions", body, {"Content-Type": "Application/JSON; charset=utf-8"})[0] == 200


def test_a_foreign_page_is_refused(api):
    body = json.dumps({"model": "tiny", "prompt": "a", "max_tokens": 1})
    for headers, status in (({"Origin": "http://evil.example"}, 403), ({"Origin": "null"}, 403), ({"Host": "evil.example:%d" % api.port}, 403),
                            ({"Host": "127.0.0.1.evil.example"}, 403), ({"Origin": "http://localhost:3000"}, 200), ({"Host": "[::1]"}, 200)):
        for method, path, data in (("POST", "/v1/completions", body), ("GET", "/v1/models", None)):
            assert api.call(method, path, data, {**JSON, **headers})[0] == status, headers
    assert b" 400 " in api.raw(b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n").split(b"\r\n")[0]
    assert b" 400 " in api.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\nConnection: close\r\n\r\n").split(b"\r\n")[0]


def test_a_body_over_the_limit_is_refused_with_words(api):
    big = b"a" * (3 << 20)
    status, error = api.call("POST", "/v1/completions", big)
    assert (status, error["error"]["code"]) == (413, "body_too_large")
    status, error = api.call("POST", "/v1/completions", iter([big[:100000]] * 40))
    assert (status, error["error"]["code"]) == (413, "body_too_large")
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    assert b" 413 " in api.raw(head + b"Content-Length: 99999999999\r\n\r\n").split(b"\r\n")[0]
    assert b" 413 " in api.raw(head + b"Content-Length: 3000000\r\nExpect: 100-continue\r\n\r\n").split(b"\r\n")[0]
    assert api.process.memory_kib() < 400 * 1024 + MEMORY_ROOM_KIB


def test_a_body_just_below_the_limit_is_read(api):
    body = json.dumps({"model": "tiny", "prompt": "a", "max_tokens": 1, "user": ""})
    status, _ = api.call("POST", "/v1/completions", body[:-2] + "u" * ((2 << 20) - len(body)) + body[-2:])
    assert status == 200
    status, _ = api.call("POST", "/v1/completions", body[:-2] + "u" * ((2 << 20) - len(body) + 1) + body[-2:])
    assert status == 413


def test_chunked_bodies_and_one_byte_at_a_time(api):
    body = json.dumps({"model": "tiny", "prompt": "the cat", "temperature": 0, "max_tokens": 5}).encode()
    want = api.complete(prompt="the cat", temperature=0, max_tokens=5)["choices"]
    status, got = api.call("POST", "/v1/completions", iter([body[i:i + 1] for i in range(len(body))]))
    assert (status, got["choices"]) == (200, want)
    with socket.create_connection(("127.0.0.1", api.port), timeout=20 * PATIENCE) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for b in b"POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body:
            s.send(bytes([b]))
        data = b""
        while part := s.recv(65536):
            data += part
    assert json.loads(data.split(b"\r\n\r\n", 1)[1])["choices"] == want


def test_wrong_lengths_and_broken_requests_hurt_nobody(api):
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    body = b'{"model": "tiny", "prompt": "a", "max_tokens": 1}'
    cases = [
        head + b"Content-Length: -5\r\n\r\n" + body,
        head + b"Content-Length: x\r\n\r\n" + body,
        head + b"Content-Length: 10\r\n\r\n" + body,  # the rest is no request
        head + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n" + body,
        head + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n" + body,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
        b"GET " + b"/" * 100000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X-A: b\r\n" * 20000 + b"\r\n",
        b"\r\n\r\n\r\n",
        b"GET /health\r\n\r\n",
        b"GET /%00%ff%zz/../health?x=%00 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        bytes(range(256)) * 8,
    ]
    for data in cases:
        out = api.raw(data, timeout=2, quiet=1)
        assert b" 200 " not in out.split(b"\r\n")[0], data[:200]
    # Longer than what comes: the client goes, and nothing was asked.
    with socket.create_connection(("127.0.0.1", api.port)) as s:
        s.sendall(head + b"Content-Length: 1000\r\n\r\n" + body)
    assert api.complete(prompt="a", max_tokens=1, temperature=0)["usage"]["completion_tokens"] == 1


@pytest.mark.covering
def test_requests_one_after_the_other_and_pipelined_on_one_connection(api):
    c = http.client.HTTPConnection("127.0.0.1", api.port, timeout=30 * PATIENCE)
    sockets = set()
    for i in range(5):
        c.request("POST", "/v1/completions", json.dumps({"model": "tiny", "prompt": "a", "seed": i, "max_tokens": 3, "stream": i % 2 == 1}), JSON)
        sockets.add(c.sock)
        r = c.getresponse()
        assert (r.status, len(r.read()) > 100) == (200, True)
    assert len(sockets) == 1
    body = b'{"model": "tiny", "prompt": "the cat", "temperature": 0, "max_tokens": 3}'
    one = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n" + body
    out = api.raw(one % (len(body), b"") + b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n" + one % (len(body), b"Connection: close\r\n"))
    assert [m for m in re.findall(rb'"object":"(text_completion|list)"', out)] == [b"text_completion", b"list", b"text_completion"]
    assert out.count(b"HTTP/1.1 200 OK") == 3


def test_a_client_of_http_1_0_gets_its_stream_up_to_the_end_of_the_connection(api):
    body = b'{"model": "tiny", "prompt": "the cat", "temperature": 0, "max_tokens": 5, "stream": true}'
    out = api.raw(b"POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    head, data = out.split(b"\r\n\r\n", 1)
    assert b"chunked" not in head.lower()
    assert "".join(texts(events(data), False)) == api.complete(prompt="the cat", temperature=0, max_tokens=5)["choices"][0]["text"]


# ---- clients that leave, do not read, or are too many

@pytest.mark.covering
def test_a_client_that_leaves_in_the_middle_of_a_stream_ends_its_request(api):
    r = api.stream("/v1/completions", **LONG)
    assert r.read(1000)
    assert api.health()["active"] == 1
    r.close()
    api.wait_quiet()


def test_a_client_that_leaves_while_it_waits_for_its_whole_answer_ends_its_request(api):
    c = http.client.HTTPConnection("127.0.0.1", api.port)
    c.request("POST", "/v1/completions", json.dumps({"model": "tiny", **LONG}), JSON)
    wait_until(lambda: api.health()["active"] == 1, 10, "the request")
    c.close()
    api.wait_quiet()


@pytest.mark.covering
def test_a_client_that_leaves_the_queue_ends_its_request(api):
    running = [api.stream("/v1/completions", **LONG) for _ in range(2)]
    readers = [Reader(r) for r in running]
    queued = []
    for stream in (True, False):
        c = http.client.HTTPConnection("127.0.0.1", api.port)
        c.request("POST", "/v1/completions", json.dumps({"model": "tiny", "stream": stream, **LONG}), JSON)
        queued.append(c)
    wait_until(lambda: api.health()["waiting"] == 2, 10, "two requests that wait")
    # Who waits for a stream gets its head, and signs of life.
    r = queued[0].getresponse()
    assert r.status == 200 and r.readline().startswith(b":")
    r.close()
    queued[0].close()
    queued[1].close()
    wait_until(lambda: api.health()["waiting"] == 0, 3, "an empty queue")
    assert api.health()["active"] == 2
    assert all(reader.is_alive() and reader.data for reader in readers)
    for r in running:
        r.fp.raw._sock.shutdown(socket.SHUT_RDWR)


@pytest.mark.deadline(240)  # a sanitizer's build fills the buffers slowly
def test_a_client_that_does_not_read_is_given_up(api):
    body = json.dumps({"model": "tiny", "stream": True, **LONG}).encode()
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect(("127.0.0.1", api.port))
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        wait_until(lambda: api.health()["active"] == 1, 10, "the request")
        before = api.process.memory_kib()
        wait_until(lambda: api.health()["active"] == 0, 200, "the end of a request nobody reads")
        assert api.process.memory_kib() - before < 20 * 1024 + MEMORY_ROOM_KIB
        # Reading at last, it gets what was kept, and the reason; no end that looks whole.
        data = b""
        s.settimeout(10 * PATIENCE)
        while not data.endswith(b"0\r\n\r\n"):
            part = s.recv(65536)
            assert part
            data += part
    assert b"slow_reader" in data and b"[DONE]" not in data


def test_more_requests_than_there_is_room_for_are_told_so(api):
    sockets = []
    body = json.dumps({"model": "tiny", **LONG}).encode()
    request = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    for _ in range(64):
        s = socket.create_connection(("127.0.0.1", api.port))
        s.sendall(request)
        sockets.append(s)
    wait_until(lambda: api.health()["waiting"] == 62, 20, "64 requests")
    for stream in (False, True):
        r = api.open("POST", "/v1/completions", json.dumps({"model": "tiny", "prompt": "a", "stream": stream}))
        error = json.loads(r.read())["error"]
        assert (r.status, r.getheader("Retry-After"), error["type"]) == (429, "1", "rate_limit_error")
    for s in sockets:
        s.close()


def test_thousands_of_connections_do_not_keep_the_api_from_answering(api):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 10000
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, wanted + 200), hard))
    before = api.process.n_descriptors()
    sockets = []
    try:
        for i in range(min(hard, wanted + 200) - 200):
            s = socket.socket()
            s.setblocking(False)
            s.connect_ex(("127.0.0.1", api.port))
            sockets.append(s)
            if i % 500 == 499:
                begin = time.monotonic()
                assert api.complete(prompt="a", max_tokens=1, temperature=0)["usage"]["completion_tokens"] == 1
                assert time.monotonic() - begin < 5 * PATIENCE
                assert api.process.n_descriptors() < before + 600
    finally:
        for s in sockets:
            s.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    wait_until(lambda: api.process.n_descriptors() <= before + 5, 60, "the descriptors to be given back")
    assert api.complete(prompt="a", max_tokens=1, temperature=0)["usage"]["completion_tokens"] == 1


def test_nothing_is_left_behind_by_a_hundred_streams(api):
    def one(i):
        r = api.stream("/v1/completions", prompt="hello", temperature=0, max_tokens=200)
        if i % 2:
            r.read()
        r.close()
    for _ in range(2):
        in_parallel(10, one)
    api.wait_quiet(10)
    descriptors, memory = api.process.n_descriptors(), api.process.memory_kib()
    for _ in range(10):
        in_parallel(10, one)
    api.wait_quiet(10)
    wait_until(lambda: api.process.n_descriptors() <= descriptors + 2, 10, "the descriptors to be given back")
    assert api.process.memory_kib() < memory + 8 * 1024 + MEMORY_ROOM_KIB


# ---- a cluster's troubles

@pytest.mark.covering
def test_the_end_of_the_server_ends_its_streams_with_a_reason(tiny_cluster):
    api = Api(tiny_cluster.serve("--ctx", "32768", "--slots", "1", "--threads", "1", http=True), "tiny")
    tiny_cluster.wait_ready()
    r = Reader(api.stream("/v1/completions", **LONG))
    whole = http.client.HTTPConnection("127.0.0.1", api.port)
    whole.request("POST", "/v1/completions", json.dumps({"model": "tiny", **LONG}), JSON)
    wait_until(lambda: api.health()["waiting"] == 1, 10, "a request that waits")
    api.process.send(signal.SIGTERM)
    rest = r.text()
    assert rest.rstrip().endswith('"code":"shutting_down"}}') and "[DONE]" not in rest
    answer = whole.getresponse()
    assert (answer.status, json.loads(answer.read())["error"]["code"]) == (503, "shutting_down")
    assert api.process.wait_exit() == 0


def test_a_second_server_on_the_port_is_told_that_it_is_taken(tiny_cluster, api):
    p = tiny_cluster.start("second", "serve", tiny_cluster.model, "--state", tiny_cluster.state("second"), "--listen", "127.0.0.1:0",
                           "--http", "127.0.0.1:%d" % api.port)
    assert p.wait_exit() == 1
    assert "HTTP on 127.0.0.1 port %d: another program listens there: is Hearth running already? --http HOST:PORT takes another" % api.port in p.log()


@pytest.mark.covering
def test_requests_wait_for_a_cluster_and_survive_a_lost_node(tiny_cluster):
    api = Api(tiny_cluster.serve("--no-node", "--nodes", "1", "--ctx", "32768", "--threads", "1", http=True), "tiny")
    status, health = api.call("GET", "/health")
    assert (status, health["status"]) == (503, "waiting") and health["waiting_for"]
    early = api.stream("/v1/completions", prompt="the cat", temperature=0, max_tokens=5)
    assert early.readline().startswith(b":")
    tiny_cluster.join("a", "--threads", "1")
    tiny_cluster.wait_ready()
    assert b"[DONE]" in early.read()
    assert api.call("GET", "/health")[0] == 200
    some = dict(LONG, max_tokens=2000)
    r = Reader(api.stream("/v1/completions", **some))
    whole = http.client.HTTPConnection("127.0.0.1", api.port)
    whole.request("POST", "/v1/completions", json.dumps({"model": "tiny", **some}), JSON)
    wait_until(lambda: api.health()["active"] == 2, 10, "two requests")
    tiny_cluster.processes["a"].kill()
    wait_until(lambda: api.health()["status"] == "waiting", 10, "the loss to be seen")
    health = api.health()
    assert health["active"] == 2 and "node" in health["waiting_for"]
    tiny_cluster.join("a", "--threads", "1")
    assert r.text().rstrip().endswith("[DONE]")
    answer = whole.getresponse()
    assert answer.status == 200
    assert tiny_cluster.status()["recovered"] >= 2
    assert api.complete(prompt="a", max_tokens=1, temperature=0)["usage"]["completion_tokens"] == 1


# ---- the demo model

def test_the_demo_model_answers_eight_clients_as_it_answers_each(cluster):
    api = Api(cluster.serve("--ctx", "512", http=True), cluster.model.stem)
    cluster.wait_ready()
    questions = ["What is the capital of France?", "Count to five.", "Name a colour.", "Wie heißt du?", "2+2=", "Say hello.", "日本語", "Why?"]

    def ask(i):
        evs = api.stream_all("/v1/chat/completions", messages=[{"role": "user", "content": questions[i]}], seed=i, max_tokens=12,
                             hearth={"logits_hash": True})
        return "".join(texts(evs, True)), same(evs[-2]["hearth"])
    alone = [ask(i) for i in range(8)]
    assert in_parallel(8, ask) == alone
    for i in (0, 6):
        run = cluster.run_alone(questions[i], "--chat", "--temp", "1", "--seed", i, n=12)
        assert {k: run[k] for k in ("prompt_ids", "output_ids", "logits_hash")} == {k: alone[i][1][k] for k in ("prompt_ids", "output_ids", "logits_hash")}
        assert run["text"] == alone[i][0]
