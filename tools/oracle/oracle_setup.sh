#!/bin/sh
# Puts the references under build/oracle/: llama.cpp as prebuilt for node-llama-cpp, the headers and vocabularies of the same release,
# our small program over its C interface, and a Python with Hugging Face tokenizers and jinja2. Needs npm, git, gcc, python3-venv.
set -eu
cd "$(dirname "$0")/../.."
version=3.22.1 # of node-llama-cpp: llama.cpp v0.5.0, both in the library's metadata and in the source bundle
tokenizers=0.23.3 jinja2=3.1.6
o=build/oracle
mkdir -p $o

fetch() { # package, folder
	[ -d "$o/$2" ] && return 0
	rm -rf "$o/unpack" && mkdir -p "$o/unpack"
	(cd $o/unpack && npm pack --silent "$1@$version" >/dev/null && tar xzf ./*.tgz)
	mv $o/unpack/package "$o/$2" && rm -rf $o/unpack
}
fetch @node-llama-cpp/linux-x64 lib
fetch node-llama-cpp source
[ -d $o/llama.cpp ] || { git -c advice.detachedHead=false clone -q $o/source/llama/gitRelease.bundle $o/llama.cpp.part && mv $o/llama.cpp.part $o/llama.cpp; }
grep -q '"tag": "v0.5.0"' $o/source/llama/llama.cpp.info.json
grep -q '"release":"v0.5.0"' $o/lib/bins/linux-x64/_nlcBuildMetadata.json

lib=$PWD/$o/lib/bins/linux-x64
mkdir -p $o/bin
gcc -O2 -Wall -Wextra -DORACLE_LIB_DIR="\"$lib\"" -I$o/llama.cpp/include -I$o/llama.cpp/ggml/include -o $o/bin/llama_oracle \
	tools/oracle/llama_oracle.c -L"$lib" -l:libllama.v0.5.0.so -l:libggml.v0.5.0.so -l:libggml-base.so -Wl,-rpath,"$lib" -lm

[ -x $o/venv/bin/python ] || python3 -m venv $o/venv
$o/venv/bin/python -c 'import tokenizers, jinja2' 2>/dev/null || $o/venv/bin/pip install --quiet --disable-pip-version-check "tokenizers==$tokenizers" "jinja2==$jinja2"
$o/bin/llama_oracle best info
