#!/usr/bin/env python3
"""What the Python package `gguf` reads in a model file, as the golden file of tests/model/test_model.c.

    python3 tools/oracle/gguf_reference.py MODEL.gguf > tests/golden/gguf_smollm2.txt

Lines, in file order: `gguf VERSION ALIGNMENT N_KEYS N_TENSORS DATA_OFFSET`; `key NAME TYPE ELEMENT_TYPE N HASH`, where the hash is BLAKE2b-128 of the value's
bytes as they lie in the file (a single string without its length, the strings of an array each with theirs); `tensor NAME TYPE N_BYTES OFFSET DIMS...`.
Made with gguf 0.19.0 (pip install gguf); the test itself needs no Python.
"""

import hashlib
import sys

import gguf


def value_bytes(field):
    kinds = field.types
    if kinds[0] == gguf.GGUFValueType.ARRAY and kinds[-1] == gguf.GGUFValueType.STRING:
        return b"".join(len(bytes(field.parts[i])).to_bytes(8, "little") + bytes(field.parts[i]) for i in field.data)
    return b"".join(field.parts[i].tobytes() for i in field.data)


def main():
    reader = gguf.GGUFReader(sys.argv[1])
    keys = [f for name, f in reader.fields.items() if not name.startswith("GGUF.")]
    version = int(reader.fields["GGUF.version"].parts[-1][0])
    print("gguf", version, reader.alignment, len(keys), len(reader.tensors), reader.data_offset)
    for f in keys:
        is_array = f.types[0] == gguf.GGUFValueType.ARRAY
        hashed = hashlib.blake2b(value_bytes(f), digest_size=16).hexdigest()
        print("key", f.name, f.types[0].value, f.types[-1].value, len(f.data) if is_array else 1, hashed)
    for t in reader.tensors:
        print("tensor", t.name, t.tensor_type.name.lower(), t.n_bytes, t.data_offset - reader.data_offset, *(int(d) for d in t.shape))


if __name__ == "__main__":
    main()
