"""Answers that are read again, later, by others, and after the coordinator was killed: the same bytes each time.

The tiny model has no token that would end an answer: each is as long as it was asked to be. `kill` is SIGKILL of the real coordinator,
`start_again` the same command again.
"""
import hashlib
import json
import re
import shutil
import signal
import socket
import subprocess
import sys

import pytest

from api import JSON, LONG, Api, Reader, events, in_parallel, same, texts
from cluster import IS_SANITIZED, MEMORY_ROOM_KIB, PATIENCE, ROOT, free_port, wait_until

REQUESTS = "/v1/hearth/requests/"
UNKNOWN = REQUESTS + "0123456789abcdef" * 2


def many(n):
    """Tokens of an answer that is not over before a test has done what it wants in the middle of it."""
    return n // 3 if IS_SANITIZED else n


def blocks(response, n=None):
    """Reads n events of a stream, or all up to its end; returns their bytes without comments. Does not read beyond the last one."""
    out, block = [], b""
    while n is None or len(out) < n:
        line = response.readline()
        if not line:
            assert n is None and block == b"", "the stream ends in event %d" % len(out)
            break
        block += line
        if line == b"\n":
            if not block.startswith(b":"):
                out.append(block)
            block = b""
    return out


def without_ids(data):
    """A stream's bytes without what differs between two requests for the same answer."""
    data = re.sub(rb'"id":"(chatcmpl|cmpl)-[0-9a-f]{24}"', rb'"id":"\1"', data)
    data = re.sub(rb'"created":\d+', b'"created":0', data)
    return re.sub(rb'"request":"[0-9a-f]{32}"', b'"request":""', data)


class Kept:
    """A coordinator that can be killed, and started again on the same ports."""

    def __init__(self, cluster, *options, node=None):
        self.cluster = cluster
        self.options = options
        self.port, self.http_port = free_port(), free_port()
        self.log_begin = 0
        self.start_again()
        if node:
            cluster.join(node, "--threads", "1")
            cluster.wait_ready()

    def start_again(self, *options):
        self.process = self.cluster.serve("--threads", "1", *self.options, *options, http=self.http_port, port=self.port)
        self.api = Api(self.process, self.cluster.model.stem)

    def kill(self):
        self.process.kill()
        self.log_begin = len(self.process.log())

    def log(self):
        """What it said since it was killed last."""
        return self.process.log()[self.log_begin:]

    def post(self, **fields):
        """Returns (response, id) of a request of which nothing is read yet."""
        path = "/v1/chat/completions" if "messages" in fields else "/v1/completions"
        r = self.api.open("POST", path, json.dumps({"model": self.api.model, **fields}))
        return r, r.getheader("Hearth-Request")

    def follow(self, id, after=None, header=None, timeout=60):
        query = "" if after is None else "?after=%s" % after
        headers = {} if header is None else {"Last-Event-ID": str(header)}
        r = self.api.open("GET", REQUESTS + id + query, None, headers, timeout)
        assert r.status == 200, r.read()
        assert r.getheader("Content-Type").startswith("text/event-stream") and r.getheader("Hearth-Request") == id
        return r

    def all_of(self, id, after=None, header=None):
        return b"".join(blocks(self.follow(id, after, header)))

    def files(self):
        folder = self.cluster.state(self.cluster.coordinator) / "journal"
        return sorted(folder.iterdir()) if folder.is_dir() else []

    def wait_file(self):
        """Returns the path of the one request that is on disk: what is half written is called .new."""
        wait_until(lambda: [f.suffix for f in self.files()] == [".request"], 10, "the journal's file")
        return self.files()[0]

    def wait_no_files(self):
        wait_until(lambda: not self.files(), 10, "an empty journal")

    def is_unknown(self, id):
        r = self.api.open("GET", REQUESTS + id)
        return r.status == 404 and json.loads(r.read())["error"]["code"] == "request_not_found"


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory):
    path = tmp_path_factory.mktemp("endless") / "tiny.gguf"
    subprocess.run([sys.executable, ROOT / "tools/make_tiny_model.py", "--ctx", "32768", "--no-stop", path], check=True)
    return path


@pytest.fixture
def kept(tiny_cluster):
    k = Kept(tiny_cluster, "--ctx", "32768", "--slots", "4")
    tiny_cluster.wait_ready()
    return k


# ---- killed and computed again

GREEDY, SEEDED, DRAWN = {"temperature": 0}, {"temperature": 0.8, "seed": 11}, {"temperature": 0.8}


def killed_at(kept, n, requests):
    """Kills the coordinator when each of the requests has exactly n tokens' events at its client, and checks what the client gets afterwards."""
    streams = [kept.post(stream=True, hearth={"logits_hash": True}, stream_options={"include_usage": True}, **q) for q in requests]
    n_before = [n + ("messages" in q) for q in requests]  # a chat's first event has no text
    before = in_parallel(len(requests), lambda i: b"".join(blocks(streams[i][0], n_before[i])))
    assert len(kept.files()) == len(requests)
    kept.kill()
    kept.start_again()
    assert len(re.findall("computed again", kept.log())) == len(requests)

    def rest(i):
        id = streams[i][1]
        return kept.all_of(id, header=n_before[i]) if i % 2 else kept.all_of(id, after=n_before[i])
    whole = [b + r for b, r in zip(before, in_parallel(len(requests), rest))]
    for i, q in enumerate(requests):
        evs = events(whole[i])
        assert evs[-1] == "[DONE]" and evs[-3]["hearth"]["request"] == streams[i][1]
        assert evs[-2]["usage"]["completion_tokens"] > n + 3
        assert kept.all_of(streams[i][1]) == whole[i]  # all of it, from the first event on
        seed = evs[-3]["hearth"]["seed"]  # drawn, when the client gave none
        undisturbed, _ = kept.post(stream=True, hearth={"logits_hash": True}, stream_options={"include_usage": True}, **{**q, "seed": seed})
        assert without_ids(b"".join(blocks(undisturbed))) == without_ids(whole[i])
    kept.wait_no_files()


@pytest.mark.parametrize("n", [1, pytest.param(17, marks=pytest.mark.covering), 200])
@pytest.mark.deadline(240)
def test_an_answer_goes_on_byte_for_byte_after_the_coordinator_was_killed(tiny_cluster, n):
    kept = Kept(tiny_cluster, "--ctx", "32768", "--slots", "4", "--no-node", "--nodes", "1", node="a")
    killed_at(kept, n, [dict(how, prompt="hello", max_tokens=n + many(1500)) for how in (GREEDY, SEEDED, DRAWN)])


@pytest.mark.deadline(240)
def test_the_demo_model_goes_on_after_its_coordinator_was_killed(cluster):
    kept = Kept(cluster, "--ctx", "512", "--no-node", "--nodes", "1", node="a")
    messages = [{"role": "user", "content": "Tell me a long story about a lighthouse."}]
    killed_at(kept, 17, [dict(how, messages=messages, max_tokens=90) for how in (GREEDY, DRAWN)])


def test_an_answer_survives_being_killed_twice_and_a_prompt_in_the_queue_too(tiny_cluster):
    kept = Kept(tiny_cluster, "--ctx", "32768", "--slots", "1")
    tiny_cluster.wait_ready()
    first, first_id = kept.post(stream=True, prompt="hello", max_tokens=many(4000), seed=1)
    queued, queued_id = kept.post(stream=True, prompt="the cat", max_tokens=20, seed=2, stop=["never said"], hearth={})
    data = b"".join(blocks(first, 5))
    kept.kill()
    kept.start_again()
    more = kept.follow(first_id, after=5)
    data += b"".join(blocks(more, 300))
    kept.kill()
    kept.start_again()
    assert [f.name[16:] for f in kept.files()] == ["-2.request"] * 2
    data += kept.all_of(first_id, after=305)
    assert data == kept.all_of(first_id) and events(data)[-1] == "[DONE]"
    again = kept.all_of(queued_id)
    whole = kept.api.complete(prompt="the cat", max_tokens=20, seed=2, hearth={})
    assert "".join(texts(events(again), False)) == whole["choices"][0]["text"]
    assert same(events(again)[-2]["hearth"]) == same(whole["hearth"])
    kept.wait_no_files()


def test_an_answer_in_one_piece_is_one_event_of_the_same_bytes(kept):
    r, id = kept.post(prompt="hello", max_tokens=30, seed=3, hearth={})
    whole = r.read()
    assert kept.all_of(id) == b"id: 1\ndata: " + whole + b"\n\nid: 2\ndata: [DONE]\n\n"
    kept.wait_no_files()
    # A client that waits for an answer in one piece hears its id with it, so one that loses it cannot come back: this test has the id from the journal.
    with socket.create_connection(("127.0.0.1", kept.api.port)) as s:
        body = json.dumps({"model": "tiny", "prompt": "hello", "max_tokens": many(3000), "seed": 3}).encode()
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        id = kept.wait_file().read_bytes()[8:24].hex()
        kept.kill()
    kept.start_again()
    evs = events(kept.all_of(id))
    assert evs[1] == "[DONE]" and evs[0]["usage"]["completion_tokens"] == many(3000) and evs[0]["object"] == "text_completion"
    assert evs[0]["choices"] == kept.api.complete(prompt="hello", max_tokens=many(3000), seed=3)["choices"]


# ---- reading again, without any trouble

@pytest.mark.covering
def test_a_request_that_is_to_be_kept_goes_on_without_its_client(kept):
    r, id = kept.post(stream=True, prompt="hello", seed=5, max_tokens=many(4000), hearth={"keep": True})
    begin = b"".join(blocks(r, 7))
    r.close()
    followers = [kept.follow(id, after=7), kept.follow(id, header=7), kept.follow(id, after=3, header=7)]  # the header is what a browser says later
    rests = in_parallel(3, lambda i: b"".join(blocks(followers[i])))
    assert rests[0] == rests[1] == rests[2]
    whole = kept.all_of(id)
    assert begin + rests[0] == whole and len(events(whole)) > 300
    assert kept.all_of(id, after=len(events(whole)) - 1) == b"id: %d\ndata: [DONE]\n\n" % len(events(whole))
    assert kept.all_of(id, after=len(events(whole))) == b""
    kept.wait_no_files()


def test_a_request_ends_with_its_last_reader(kept):
    r, id = kept.post(stream=True, **LONG)
    blocks(r, 3)
    other = kept.follow(id)
    blocks(other, 3)
    before = kept.process.n_descriptors()
    r.close()
    wait_until(lambda: kept.process.n_descriptors() < before, 10, "the connection of the one that left to be closed")
    assert kept.api.health()["active"] == 1
    blocks(other, 3)
    other.close()
    kept.api.wait_quiet()
    assert kept.is_unknown(id)
    kept.wait_no_files()


def unchunked(body):
    """The bytes of a chunked body: a chunk may end anywhere, in the middle of a word too."""
    out = b""
    while body:
        size, body = body.split(b"\r\n", 1)
        n = int(size, 16)
        out, body = out + body[:n], body[n + 2:]
    return out


def test_a_reader_that_does_not_read_holds_nobody(kept):
    r, id = kept.post(stream=True, prompt="hello", temperature=0, max_tokens=7200, hearth={"keep": True})
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(("127.0.0.1", kept.api.port))
        deaf.sendall(b"GET " + REQUESTS.encode() + id.encode() + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        before = kept.process.memory_kib()
        whole = b"".join(blocks(r))
        assert len(whole) > 1500000  # more than is kept for a reader
        assert kept.all_of(id) == whole
        assert kept.process.memory_kib() - before < 16 * 1024 + MEMORY_ROOM_KIB
        # Reading at last, it gets all of it.
        data, end = b"", b"[DONE]\n\n\r\n0\r\n\r\n"
        deaf.settimeout(20 * PATIENCE)
        while not data.endswith(end):
            part = deaf.recv(65536)
            assert part
            data += part
    assert unchunked(data.split(b"\r\n\r\n", 1)[1]).count(b"data: ") == len(events(whole))


def test_a_request_that_waits_for_a_cluster_can_be_followed_and_starts_with_it(tiny_cluster):
    kept = Kept(tiny_cluster, "--no-node", "--nodes", "1")
    r, id = kept.post(stream=True, prompt="hello", temperature=0, max_tokens=20, hearth={"keep": True})
    assert r.readline().startswith(b":") and kept.follow(id).readline().startswith(b":")
    r.close()
    kept.kill()
    kept.start_again()
    follower = kept.follow(id)
    assert follower.readline().startswith(b":")
    tiny_cluster.join("a", "--threads", "1")
    assert "[DONE]" in events(follower.read()[1:])


def test_a_refused_request_has_its_status_for_who_follows_too(kept):
    r, id = kept.post(prompt=[5] * 40000, max_tokens=1)
    assert (r.status, id) == (400, None)  # refused before it was one


def test_answers_that_ended_are_held_up_to_a_number(tiny_cluster):
    kept = Kept(tiny_cluster, "--ctx", "512", "--slots", "8", "--no-journal")
    tiny_cluster.wait_ready()

    def ask(_):
        r, id = kept.post(stream=True, prompt="hello", max_tokens=2)
        return id, b"".join(blocks(r))
    first = ask(0)
    assert kept.all_of(first[0]) == first[1]
    before = kept.process.memory_kib()
    later = [pair for _ in range(129) for pair in in_parallel(8, ask)]  # 1,032: eight more than are held
    wait_until(lambda: kept.is_unknown(first[0]), 10, "the first one to make room")
    assert all(kept.all_of(id) == data for id, data in later[-900::100])
    assert kept.process.memory_kib() - before < 8 * 1024 + MEMORY_ROOM_KIB
    assert kept.files() == []


# ---- hostile

@pytest.mark.covering
def test_wrong_ids_and_numbers_get_an_error(kept):
    r, id = kept.post(stream=True, prompt="hello", temperature=0, max_tokens=20)
    whole = r.read()
    assert kept.all_of(id) == whole
    for bad in ("0", id[:-1], id + "0", id.upper() if id.upper() != id else "A" * 32, id[:-1] + "g", "0" * 32, "f" * 100000, "../" * 10 + "etc/passwd", "%2e%2e%2f" * 4,
                "..%2F..%2Fjournal", id + "/", id + "%00x"[:0] + "/..", "%ff" * 32, "*", "0x" + id[2:], id[:16] + "%20" + id[17:]):
        status, body = kept.api.call("GET", REQUESTS + bad) if len(bad) < 5000 else (None, None)
        if status is None:
            out = kept.api.raw(b"GET " + (REQUESTS + bad).encode() + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", timeout=5)
            assert b" 200 " not in out.split(b"\r\n")[0]
            continue
        assert (status, body["error"]["code"], body["error"]["type"]) == (404, "request_not_found", "invalid_request_error"), bad
    for bad in ("-1", "+1", "1" + "0" * 30, "9" * 5000, "2147483648", "1.5", "1e3", "0x1", "abc", "", "%00", "%20", "1%00", "1;2", "NaN"):
        status, body = kept.api.call("GET", REQUESTS + id + "?after=" + bad)
        assert (status, body["error"]["code"], body["error"]["param"]) == (400, "invalid_value", "after"), bad
        if bad and "%" not in bad:
            status, body = kept.api.call("GET", REQUESTS + id, None, {"Last-Event-ID": bad})
            assert (status, body["error"]["param"]) == (400, "Last-Event-ID"), bad
    for query in ("?aftr=1", "?after=1&after=2", "?after=1&x", "?" + "&".join("p%d=1" % i for i in range(300))):
        status, body = kept.api.call("GET", REQUESTS + id + query)
        assert (status, body["error"]["code"]) == (400, "unknown_parameter"), query
    # More than there is: the stream has ended, and never had it.
    n = len(events(whole))
    status, body = kept.api.call("GET", REQUESTS + id + "?after=%d" % (n + 1))
    assert (status, body["error"]["param"]) == (400, "after")
    assert kept.api.call("GET", REQUESTS + id + "?after=2147483647")[0] == 400
    assert kept.api.open("POST", REQUESTS + id, "{}").status == 405
    assert kept.api.open("GET", REQUESTS + id, None, {"Origin": "http://evil.example"}).status == 403
    r = kept.api.open("HEAD", REQUESTS + id)
    assert (r.status, r.read()) == (200, b"")
    assert kept.all_of(id, after="007") == b"".join(whole[m.start():] for m in [re.search(rb"id: 8\n", whole)])


def test_a_number_that_is_not_reached_yet_waits_and_then_says_where_the_stream_ended(kept):
    r, id = kept.post(stream=True, prompt="hello", temperature=0, max_tokens=many(6000))
    ahead = kept.follow(id, after=100000)
    whole = b"".join(blocks(r))
    rest = ahead.read().decode()
    assert '"param":"after"' in rest and "[DONE]" not in rest and "id:" not in rest
    assert events(whole)[-1] == "[DONE]"


# ---- the journal's own troubles

def test_the_journal_is_private_and_gone_when_the_answer_is(kept):
    r, id = kept.post(stream=True, **LONG)
    blocks(r, 1)
    (file,) = kept.files()
    assert file.stat().st_mode & 0o7777 == 0o600 and file.parent.stat().st_mode & 0o7777 == 0o700
    assert id not in file.name and bytes.fromhex(id) in file.read_bytes()
    r.close()
    kept.wait_no_files()
    assert id not in kept.log()


def test_without_a_journal_nothing_is_on_disk_and_nothing_survives(kept):
    r, left = kept.post(stream=True, hearth={"keep": True}, **LONG)
    blocks(r, 1)
    kept.kill()
    assert kept.files()
    kept.start_again("--no-journal")
    assert "1 requests of an earlier run removed" in kept.log()
    assert kept.files() == [] and kept.is_unknown(left)
    r, id = kept.post(stream=True, prompt="hello", temperature=0, max_tokens=300)
    begin = b"".join(blocks(r, 100))
    assert kept.files() == [] and begin + b"".join(blocks(r)) == kept.all_of(id)
    r, id = kept.post(stream=True, **LONG)
    blocks(r, 1)
    kept.kill()
    kept.start_again()
    assert kept.is_unknown(id)


def test_a_journal_of_another_wire_type_or_model_is_refused_and_waits(kept):
    r, id = kept.post(stream=True, hearth={"keep": True}, prompt="hello", seed=1, max_tokens=many(4000))
    begin = b"".join(blocks(r, 4))
    kept.kill()
    kept.start_again("--wire", "q8")
    assert "not computed again: it was for --wire f32" in kept.log()
    assert kept.is_unknown(id) and kept.api.complete(prompt="a", max_tokens=1)
    wait_until(lambda: len(kept.files()) == 1, 10, "the other one's entry to go")
    kept.kill()
    kept.options = ("--ctx", "500")
    kept.start_again()
    assert "not computed again: it was for --ctx %d" % (3 + many(4000)) in kept.log()
    kept.kill()
    other = kept.cluster.folder / "other.gguf"
    shutil.copy(kept.cluster.model, other)
    with open(other, "r+b") as f:  # the last weight
        f.seek(-1, 2)
        last = f.read(1)[0]
        f.seek(-1, 2)
        f.write(bytes([last ^ 1]))
    kept.cluster.model, model = other, kept.cluster.model
    kept.start_again()
    assert "not computed again: it was for another model (tiny)" in kept.log()
    kept.kill()
    kept.cluster.model = model
    kept.options = ("--ctx", "32768")
    kept.start_again()
    assert begin + kept.all_of(id, after=4) == kept.all_of(id)
    kept.wait_no_files()


def test_more_requests_than_can_be_under_way_stay_for_the_next_start(tiny_cluster):
    kept = Kept(tiny_cluster, "--no-node", "--nodes", "1")
    _, id = kept.post(stream=True, prompt="hello", seed=9, max_tokens=4, hearth={"keep": True})
    file = kept.wait_file()
    kept.kill()
    data = file.read_bytes()[:-32]
    ids = [id] + ["%032x" % i for i in range(2, 66)]
    for i in range(2, 66):
        body = data[:8] + bytes.fromhex(ids[i - 1]) + data[24:]
        other = file.with_name("%016x-0.request" % i)
        other.write_bytes(body + hashlib.blake2b(body, digest_size=32).digest())
        other.chmod(0o600)
    kept.start_again()
    assert len(re.findall("is computed again", kept.log())) == 64
    assert len(re.findall("stays for the next start: 64 others", kept.log())) == 1
    assert [f.name[15:18] for f in kept.files()[-2:]] == ["0-1", "1-0"] and len(kept.files()) == 65
    tiny_cluster.join("a", "--threads", "1")
    assert events(kept.all_of(ids[63]))[-1] == "[DONE]"
    wait_until(lambda: len(kept.files()) == 1, 30, "the answers of the 64")
    assert kept.is_unknown(ids[64])
    kept.kill()
    kept.start_again()
    assert len(re.findall("is computed again", kept.log())) == 1
    assert events(kept.all_of(ids[64]))[-1] == "[DONE]"
    kept.wait_no_files()


def test_a_damaged_journal_is_told_and_the_rest_goes_on(kept):
    streams = [kept.post(stream=True, hearth={"keep": True}, prompt="hello", seed=i, max_tokens=many(4000)) for i in range(3)]
    for r, _ in streams:
        blocks(r, 1)
    kept.kill()
    files = kept.files()
    data = bytearray(files[1].read_bytes())
    data[len(data) // 2] ^= 4
    files[1].write_bytes(data)
    files[2].write_bytes(files[2].read_bytes()[:50])
    kept.start_again()
    assert len(re.findall(r"error: journal: .*damaged.*; removed", kept.log())) == 2
    evs = [events(kept.all_of(id)) if not kept.is_unknown(id) else None for _, id in streams]
    assert [e is not None and e[-1] == "[DONE]" for e in evs] == [True, False, False]


@pytest.mark.covering
def test_a_journal_that_cannot_be_written_ends_no_answer(kept):
    folder = kept.cluster.state("coordinator") / "journal"
    shutil.rmtree(folder)
    folder.write_text("in the way")
    whole = kept.api.complete(prompt="hello", seed=1, max_tokens=20)
    assert "".join(texts(kept.api.stream_all("/v1/completions", prompt="hello", seed=1, max_tokens=20), False)) == whole["choices"][0]["text"]
    assert len(re.findall("Not a directory: answers go on, but", kept.log())) == 1  # said once
    folder.unlink()
    folder.mkdir(0o700)
    r, _ = kept.post(stream=True, **LONG)
    blocks(r, 1)
    assert len(kept.files()) == 1 and "requests are on disk again" in kept.log()
    kept.kill()
    shutil.rmtree(folder)
    folder.write_text("in the way")
    kept.start_again()
    assert "requests are not kept on disk" in kept.log()
    assert kept.api.complete(prompt="hello", seed=1, max_tokens=20)["choices"] == whole["choices"]


def test_a_full_disk_ends_no_answer(kept):
    kept.kill()
    state = kept.cluster.state("coordinator")
    mount = "mkdir -p -m 700 %s/journal && mount -t tmpfs -o size=4k,mode=700 tmpfs %s/journal" % (state, state)
    if subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True).returncode != 0:
        pytest.skip("no small file system can be mounted here")
    full = " && head -c 4096 /dev/zero > %s/journal/ballast" % state
    argv = [kept.cluster.hearth, "serve", kept.cluster.model, "--state", state, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--threads", "1"]
    kept.cluster.hearth, real = "/usr/bin/unshare", kept.cluster.hearth
    p = kept.cluster.start("full", "-m", "sh", "-c", mount + full + ' && exec "$@"', "sh", *argv)
    kept.cluster.hearth = real
    api = Api(p, "tiny")
    p.wait_log("ready: 4 layers")
    whole = api.complete(prompt="hello", seed=1, max_tokens=20)
    assert len(events(api.stream("/v1/completions", prompt="hello", seed=1, max_tokens=20).read())) > 10
    p.wait_log("No space left on device: answers go on, but")
    assert whole["usage"]["completion_tokens"] == 20


def test_an_orderly_stop_leaves_what_is_to_be_kept_for_the_next_start(kept):
    r, id = kept.post(stream=True, hearth={"keep": True}, prompt="hello", seed=9, max_tokens=many(6000))
    other, other_id = kept.post(stream=True, **LONG)
    begin = b"".join(blocks(r, 4))
    blocks(other, 4)
    readers = [Reader(r), Reader(other)]
    assert kept.process.stop() == 0
    for reader in readers:
        assert '"code":"shutting_down"' in reader.text().rstrip().split("\n")[-1]
    assert len(kept.files()) == 1
    kept.start_again()
    assert begin + kept.all_of(id, after=4) == kept.all_of(id)
    assert kept.is_unknown(other_id)
    kept.wait_no_files()
