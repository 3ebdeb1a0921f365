"""The independent LNK1 agrees with the specification's vectors and, byte for byte, with the transcript the C code is held to."""

import hashlib
import importlib.util
import random
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
GOLDEN = HERE.parent / "golden" / "lnk1_transcript.txt"

spec = importlib.util.spec_from_file_location("lnk1", HERE / "lnk1.py")
lnk1 = importlib.util.module_from_spec(spec)
spec.loader.exec_module(lnk1)

VECTORS = {
    (lnk1.MEMBER, 1): ("b9d85bb5cb5567c807fe4536000e793bc1fe6af6a0291b539b7e69a3fff3f178",
                       "a4370be55961049901511f1e2f7f0c14c8f71a5efaaea77a2ade80e9c71cbc8d",
                       "171aea841db1da15144e5ec4bcc3e9268de12b5ad60557790ca4b3863c04af17"),
    (lnk1.JOIN, 0): ("14a39552bc07a44c225b8b130d2c709cb0b37651b0d8b9c74a3be61bc0509f3d",
                     "1c8d6a382d0972bba95e04b44143ca9ecba0ba17ec54c84f3189d9404109e2b1",
                     "cd5a76ef3ffb3f8c2cd1f86763b801a2c459265adf510b83b430289f347faae2"),
}


def test_x25519_agrees_with_rfc_7748():
    k = u = b"\x09" + bytes(31)
    assert lnk1.x25519(k, u).hex() == "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079"
    a, b = lnk1.F(32, 1), lnk1.F(32, 2)
    assert lnk1.x25519(a, lnk1.public_key(b)) == lnk1.x25519(b, lnk1.public_key(a))


def test_poly1305_agrees_with_rfc_8439():
    key = bytes.fromhex("85d6be7857556d337f4452fe42d506a80103808afb0db2fd4abff6af4149f51b")
    assert lnk1.poly1305(key, b"Cryptographic Forum Research Group").hex() == "a8061dc1305136c6c22b8baf0c0127a9"


@pytest.mark.parametrize("mode, kind", VECTORS)
def test_the_vectors_come_out(mode, kind):
    c, s, messages = lnk1.shake_hands(lnk1.vector_inputs(mode, kind))
    want = VECTORS[mode, kind]
    assert [len(m) for m in messages] == [72, 80, 136, 80]
    assert hashlib.blake2b(b"".join(messages), digest_size=32).hexdigest() == want[0]
    assert tuple(k.hex() for k in c.keys) == want[1:]
    assert c.keys == s.keys


def test_every_byte_of_the_transcript_is_recomputed():
    assert GOLDEN.read_text() == lnk1.transcript()


@pytest.mark.parametrize("direction, name", enumerate(("c2s", "s2c")))
def test_the_golden_records_open(direction, name):
    c, _, _ = lnk1.shake_hands(lnk1.vector_inputs(lnk1.MEMBER, 1))
    header = (lnk1.F(24, 11), lnk1.F(24, 12))[direction]
    r = lnk1.Records(c.keys[direction], header, 1, direction, c.session_id)
    lines = [line.split() for line in GOLDEN.read_text().splitlines()]
    records = [bytes.fromhex(h) for mode, what, h in lines if mode == "member" and what.startswith(name + "_")]
    opened = [r.open(record) for record in records]
    assert [len(m) for m, _ in opened] == lnk1.RECORD_LENS + [0]
    assert [m for m, _ in opened[:-1]] == [lnk1.F(n, 20 + i + 100 * direction) for i, n in enumerate(lnk1.RECORD_LENS)]
    assert [i for i, (_, tag) in enumerate(opened) if tag == lnk1.TAG_REKEY] == [2, 5, 7, 10]
    assert opened[-1][1] == lnk1.TAG_FINAL


def flipped(message, bit):
    out = bytearray(message)
    out[bit // 8] ^= 1 << (bit % 8)
    return bytes(out)


@pytest.mark.parametrize("mode, kind", VECTORS)
def test_a_flipped_bit_closes(mode, kind):
    """A sample of them; the C tests flip every one."""
    rng = random.Random(1)
    inputs = lnk1.vector_inputs(mode, kind)
    _, _, (m1, m2, m3, m4) = lnk1.shake_hands(inputs)
    for _ in range(4):
        with pytest.raises(lnk1.Refused):
            lnk1.Server(inputs).m2(flipped(m1, rng.randrange(8 * len(m1))))
        c, s = lnk1.Client(inputs), lnk1.Server(inputs)
        c.m1()
        with pytest.raises(lnk1.Refused):
            c.m3(flipped(m2, rng.randrange(8 * len(m2))))
        s.m2(m1)
        with pytest.raises(lnk1.Refused):
            s.m4(flipped(m3, rng.randrange(8 * len(m3))))
        c = lnk1.Client(inputs)
        c.m1()
        c.m3(m2)
        with pytest.raises(lnk1.Refused):
            c.m4(flipped(m4, rng.randrange(8 * len(m4))))
