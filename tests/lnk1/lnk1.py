"""LNK1 a second time, from hashlib alone: the specification read independently of the C code.

X25519, XSalsa20-Poly1305 and XChaCha20-Poly1305 streams are written out here, slowly and plainly. Run as a program it
prints the transcript that tests/golden/lnk1_transcript.txt holds: every message of both of the specification's vectors and some
records after them.
"""

import hashlib
import struct
from dataclasses import dataclass, field

# ---- X25519 (RFC 7748) ----

P = 2**255 - 19


def x25519(scalar: bytes, u: bytes) -> bytes:
    k = int.from_bytes(scalar, "little")
    k = (k & ~7 & ~(1 << 255)) | (1 << 254)
    x1 = int.from_bytes(u, "little") & ((1 << 255) - 1)
    x2, z2, x3, z3, swap = 1, 0, x1, 1, 0
    for t in range(254, -1, -1):
        bit = (k >> t) & 1
        if swap ^ bit:
            x2, x3, z2, z3 = x3, x2, z3, z2
        swap = bit
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        aa, bb, da, cb = a * a % P, b * b % P, d * a % P, c * b % P
        e = aa - bb
        x3, z3 = (da + cb) ** 2 % P, x1 * (da - cb) ** 2 % P
        x2, z2 = aa * bb % P, e * (aa + 121665 * e) % P
    if swap:
        x2, z2 = x3, z3
    return (x2 * pow(z2, P - 2, P) % P).to_bytes(32, "little")


def public_key(scalar: bytes) -> bytes:
    return x25519(scalar, b"\x09" + bytes(31))


# ---- Salsa20 and ChaCha20 cores ----

M32 = 0xFFFFFFFF
SIGMA = struct.unpack("<4I", b"expand 32-byte k")


def rotl(x, n):
    return ((x << n) | (x >> (32 - n))) & M32


def salsa_rounds(s):
    x = list(s)
    for _ in range(10):
        for a, b, c, d in ((0, 4, 8, 12), (5, 9, 13, 1), (10, 14, 2, 6), (15, 3, 7, 11),
                           (0, 1, 2, 3), (5, 6, 7, 4), (10, 11, 8, 9), (15, 12, 13, 14)):
            x[b] ^= rotl((x[a] + x[d]) & M32, 7)
            x[c] ^= rotl((x[b] + x[a]) & M32, 9)
            x[d] ^= rotl((x[c] + x[b]) & M32, 13)
            x[a] ^= rotl((x[d] + x[c]) & M32, 18)
    return x


def salsa_state(key, block):
    k, n = struct.unpack("<8I", key), struct.unpack("<4I", block)
    return [SIGMA[0], *k[:4], SIGMA[1], *n, SIGMA[2], *k[4:], SIGMA[3]]


def hsalsa20(key, nonce16):
    x = salsa_rounds(salsa_state(key, nonce16))
    return struct.pack("<8I", *(x[i] for i in (0, 5, 10, 15, 6, 7, 8, 9)))


def xsalsa20(key, nonce24, n_bytes):
    sub, out, block = hsalsa20(key, nonce24[:16]), b"", 0
    while len(out) < n_bytes:
        s = salsa_state(sub, nonce24[16:] + struct.pack("<Q", block))
        out += struct.pack("<16I", *((a + b) & M32 for a, b in zip(s, salsa_rounds(s))))
        block += 1
    return out[:n_bytes]


def chacha_rounds(s):
    x = list(s)
    for _ in range(10):
        for a, b, c, d in ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
                           (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)):
            x[a] = (x[a] + x[b]) & M32
            x[d] = rotl(x[d] ^ x[a], 16)
            x[c] = (x[c] + x[d]) & M32
            x[b] = rotl(x[b] ^ x[c], 12)
            x[a] = (x[a] + x[b]) & M32
            x[d] = rotl(x[d] ^ x[a], 8)
            x[c] = (x[c] + x[d]) & M32
            x[b] = rotl(x[b] ^ x[c], 7)
    return x


def hchacha20(key, nonce16):
    x = chacha_rounds([*SIGMA, *struct.unpack("<8I", key), *struct.unpack("<4I", nonce16)])
    return struct.pack("<8I", *(x[:4] + x[12:]))


def chacha20_ietf(key, nonce12, block, n_bytes):
    out = b""
    while len(out) < n_bytes:
        s = [*SIGMA, *struct.unpack("<8I", key), block, *struct.unpack("<3I", nonce12)]
        out += struct.pack("<16I", *((a + b) & M32 for a, b in zip(s, chacha_rounds(s))))
        block += 1
    return out[:n_bytes]


def xor(a, b):
    return bytes(x ^ y for x, y in zip(a, b))


def poly1305(key, data):
    r = int.from_bytes(key[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
    acc = 0
    for i in range(0, len(data), 16):
        acc = (acc + int.from_bytes(data[i:i + 16] + b"\x01", "little")) * r % ((1 << 130) - 5)
    return ((acc + int.from_bytes(key[16:], "little")) % (1 << 128)).to_bytes(16, "little")


# ---- crypto_secretbox_easy: tag, then ciphertext ----

class Refused(Exception):
    """What the C code answers by closing."""


def secretbox(key, nonce, m):
    stream = xsalsa20(key, nonce, 32 + len(m))
    c = xor(m, stream[32:])
    return poly1305(stream[:32], c) + c


def secretbox_open(key, nonce, box):
    stream = xsalsa20(key, nonce, 32 + len(box) - 16)
    if poly1305(stream[:32], box[16:]) != box[:16]:
        raise Refused("a message does not open")
    return xor(box[16:], stream[32:])


# ---- crypto_secretstream_xchacha20poly1305 ----

TAG_MESSAGE, TAG_REKEY, TAG_FINAL = 0, 2, 3


class SecretStream:
    def __init__(self, key, header):
        self.key = hchacha20(key, header[:16])
        self.counter, self.inonce = 1, header[16:]

    def nonce(self):
        return struct.pack("<I", self.counter) + self.inonce

    def mac(self, ad, block, c):
        text = ad + bytes(-len(ad) % 16) + block + c
        # libsodium pads the message as (16 - 64 + mlen) mod 16 zero bytes: a slip of its own, kept for compatibility.
        text += bytes((16 - 64 + len(c)) % 16) + struct.pack("<QQ", len(ad), 64 + len(c))
        return poly1305(chacha20_ietf(self.key, self.nonce(), 0, 32), text)

    def advance(self, mac, tag):
        self.inonce = xor(self.inonce, mac[:8])
        self.counter = (self.counter + 1) & M32
        if tag & TAG_REKEY or self.counter == 0:
            new = xor(self.key + self.inonce, chacha20_ietf(self.key, self.nonce(), 0, 40))
            self.key, self.inonce, self.counter = new[:32], new[32:], 1

    def push(self, m, ad, tag):
        block = xor(bytes([tag]) + bytes(63), chacha20_ietf(self.key, self.nonce(), 1, 64))
        c = xor(m, chacha20_ietf(self.key, self.nonce(), 2, len(m)))
        mac = self.mac(ad, block, c)
        self.advance(mac, tag)
        return block[:1] + c + mac

    def pull(self, sealed, ad):
        stream = chacha20_ietf(self.key, self.nonce(), 1, 64)
        tag = sealed[0] ^ stream[0]
        block = sealed[:1] + stream[1:]
        c, mac = sealed[1:-16], sealed[-16:]
        if self.mac(ad, block, c) != mac:
            raise Refused("a record does not open")
        m = xor(c, chacha20_ietf(self.key, self.nonce(), 2, len(c)))
        self.advance(mac, tag)
        return m, tag


# ---- The handshake ----

def blake2b(data, key=b"", size=32):
    return hashlib.blake2b(data, digest_size=size, key=key).digest()


def u32(n):
    return struct.pack("<I", n)


class Symmetric:
    def __init__(self, server_pk):
        self.h = self.ck = blake2b(b"LNK1 XK X25519 BLAKE2b XSalsa20Poly1305" + server_pk)

    def mix_hash(self, x):
        self.h = blake2b(b"h" + u32(32) + u32(len(x)) + self.h + x)

    def mix_key(self, x):
        self.ck = blake2b(b"ck" + u32(len(x)) + x, key=self.ck)

    def derive(self, label):
        return blake2b(label + self.h, key=self.ck)

    def seal(self, label, m):
        box = secretbox(self.derive(label), bytes(24), m)
        self.mix_hash(box)
        return box

    def open(self, label, box):
        m = secretbox_open(self.derive(label), bytes(24), box)
        self.mix_hash(box)
        return m

    def mix_dh(self, own_sk, peer_pk, c_pk, s_pk):
        if peer_pk[31] & 0x80:
            raise Refused("top bit of byte 31")
        q = x25519(own_sk, peer_pk)
        if q == bytes(32):
            raise Refused("low order")
        rt = blake2b(q + c_pk + s_pk, size=64)
        self.mix_key(rt[32:] + rt[:32])


MEMBER, JOIN = 0, 1


@dataclass
class Inputs:
    """One handshake: everything either side knows or draws."""
    mode: int
    kind: int
    server_sk: bytes
    node_sk: bytes
    e_c: bytes
    e_s: bytes
    psk: bytes
    cluster_id: bytes
    token_id: bytes
    token_secret: bytes
    session_id: bytes
    boot_id: bytes
    header_c2s: bytes
    header_s2c: bytes
    member_epoch: int
    last_epoch: int
    version_min: int
    version_max: int
    server_max: int
    canon: int
    record_max: int
    psk_id: bytes = field(init=False)
    hello: bytes = field(init=False)
    link_psk: bytes = field(init=False)

    def __post_init__(self):
        join = self.mode == JOIN
        self.psk_id = self.token_id if join else bytes(8)
        self.hello = self.token_id + bytes(8) if join else self.cluster_id
        self.link_psk = blake2b(b"join" + self.token_id, key=self.token_secret) if join else self.psk


class Client:
    def __init__(self, inputs):
        self.i = inputs
        self.server_pk = public_key(inputs.server_sk)  # the pin
        self.e_pk = public_key(inputs.e_c)
        self.node_pk = public_key(inputs.node_sk)
        self.sym = Symmetric(self.server_pk)

    def m1(self):
        head = b"LNK1" + bytes([1, 1, self.i.mode, self.i.kind]) + self.e_pk
        self.sym.mix_hash(head)
        self.sym.mix_dh(self.i.e_c, self.server_pk, self.e_pk, self.server_pk)
        return head + self.sym.seal(b"m1", self.i.hello)

    def m3(self, m2):
        e_s = m2[:32]
        self.sym.mix_hash(e_s)
        self.sym.mix_dh(self.i.e_c, e_s, self.e_pk, e_s)
        plain = self.sym.open(b"m2", m2[32:])
        self.session_id = plain[:16]
        out = self.sym.seal(b"m3s", self.node_pk + self.i.psk_id)
        self.sym.mix_dh(self.i.node_sk, e_s, self.node_pk, e_s)
        self.sym.mix_key(self.i.link_psk)
        i = self.i
        proof = i.boot_id + struct.pack("<QHHI", i.last_epoch, i.version_min, i.version_max, i.canon) + i.header_c2s + bytes(16)
        return out + self.sym.seal(b"m3p", proof)

    def m4(self, m4):
        plain = self.sym.open(b"m4", m4)
        status, self.version, self.record_max, self.member_epoch = struct.unpack("<HHIQ", plain[:16])
        if status or any(plain[40:]):
            raise Refused("status or zero field")
        self.header_s2c = plain[16:40]
        self.keys = self.sym.derive(b"c2s"), self.sym.derive(b"s2c")


class Server:
    def __init__(self, inputs):
        self.i = inputs
        self.pk = public_key(inputs.server_sk)
        self.e_pk = public_key(inputs.e_s)
        self.sym = Symmetric(self.pk)

    def m2(self, m1):
        if m1[:8] != b"LNK1" + bytes([1, 1, self.i.mode, self.i.kind]):
            raise Refused("prefix")
        self.e_c = m1[8:40]
        self.sym.mix_hash(m1[:40])
        self.sym.mix_dh(self.i.server_sk, self.e_c, self.e_c, self.pk)
        if self.sym.open(b"m1", m1[40:]) != self.i.hello:
            raise Refused("cluster_id or token_id")
        self.sym.mix_hash(self.e_pk)
        self.sym.mix_dh(self.i.e_s, self.e_c, self.e_c, self.e_pk)
        return self.e_pk + self.sym.seal(b"m2", self.i.session_id + bytes(16))

    def m4(self, m3):
        who = self.sym.open(b"m3s", m3[:56])
        self.node_pk = who[:32]
        if who[32:] != self.i.psk_id:
            raise Refused("psk_id")
        self.sym.mix_dh(self.i.e_s, self.node_pk, self.node_pk, self.e_pk)
        self.sym.mix_key(self.i.link_psk)
        proof = self.sym.open(b"m3p", m3[56:])
        _, _, low, high, canon = struct.unpack("<8sQHHI", proof[:24])
        if any(proof[48:]) or low > high or canon != self.i.canon:
            raise Refused("a field")
        self.header_c2s = proof[24:48]
        chosen = min(high, self.i.server_max)
        plain = struct.pack("<HHIQ", 0, chosen, self.i.record_max, self.i.member_epoch) + self.i.header_s2c + bytes(24)
        out = self.sym.seal(b"m4", plain)
        self.keys = self.sym.derive(b"c2s"), self.sym.derive(b"s2c")
        return out


class Records:
    """One direction: what is sealed, and how records are laid out."""

    def __init__(self, key, header, kind, direction, session_id, rekey_records=1 << 16, rekey_bytes=1 << 30):
        self.stream = SecretStream(key, header)
        self.tail = bytes([kind, direction]) + session_id
        self.rekey_records, self.rekey_bytes = rekey_records, rekey_bytes
        self.n_records = self.n_bytes = 0

    def seal(self, m):
        self.n_records += 1
        self.n_bytes += len(m)
        tag = TAG_MESSAGE
        if self.n_records >= self.rekey_records or self.n_bytes >= self.rekey_bytes:
            tag, self.n_records, self.n_bytes = TAG_REKEY, 0, 0
        return self.record(m, tag)

    def final(self):
        return self.record(b"", TAG_FINAL)

    def record(self, m, tag):
        return u32(len(m)) + self.stream.push(m, u32(len(m)) + self.tail, tag)

    def open(self, record):
        m, tag = self.stream.pull(record[4:], record[:4] + self.tail)
        if tag not in (TAG_MESSAGE, TAG_REKEY, TAG_FINAL) or (tag == TAG_FINAL) != (len(m) == 0):
            raise Refused("tag")
        return m, tag


# ---- The vectors and the transcript ----

def F(n, a):
    return bytes((a + 7 * i) % 256 for i in range(n))


def vector_inputs(mode, kind):
    return Inputs(mode=mode, kind=kind, server_sk=F(32, 1), node_sk=F(32, 2), e_c=F(32, 3), e_s=F(32, 4), psk=F(32, 5),
                  cluster_id=F(16, 6), token_id=F(8, 7), token_secret=F(32, 8), session_id=F(16, 9), boot_id=F(8, 10),
                  header_c2s=F(24, 11), header_s2c=F(24, 12), member_epoch=0x0102030405060708, last_epoch=0x0102030405060707,
                  version_min=1, version_max=3, server_max=2, canon=1, record_max=0x40000)


def shake_hands(inputs):
    c, s = Client(inputs), Server(inputs)
    m1 = c.m1()
    m2 = s.m2(m1)
    m3 = c.m3(m2)
    m4 = s.m4(m3)
    c.m4(m4)
    assert c.keys == s.keys and c.session_id == inputs.session_id
    return c, s, [m1, m2, m3, m4]


# Lengths of the records of each direction, with TAG_REKEY on every third record, or once 300 bytes are reached.
RECORD_LENS = [1, 15, 16, 17, 63, 64, 65, 300, 5, 128, 250]
REKEY_RECORDS, REKEY_BYTES = 3, 300


def transcript():
    lines = []
    for name, mode, kind in (("member", MEMBER, 1), ("join", JOIN, 0)):
        c, _, messages = shake_hands(vector_inputs(mode, kind))
        lines += [f"{name} m{n + 1} {m.hex()}" for n, m in enumerate(messages)]
        lines += [f"{name} key_{d} {k.hex()}" for d, k in zip(("c2s", "s2c"), c.keys)]
        headers = F(24, 11), F(24, 12)
        for direction, d in enumerate(("c2s", "s2c")):
            r = Records(c.keys[direction], headers[direction], kind, direction, c.session_id, REKEY_RECORDS, REKEY_BYTES)
            records = [r.seal(F(n, 20 + i + 100 * direction)) for i, n in enumerate(RECORD_LENS)] + [r.final()]
            lines += [f"{name} {d}_{i} {rec.hex()}" for i, rec in enumerate(records)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(transcript(), end="")
