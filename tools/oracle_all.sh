#!/bin/sh
# Asks the independent implementations again (llama.cpp, Hugging Face tokenizers, jinja2, the gguf package, tomllib) and compares with what
# is committed in tests/golden/: what they say today must be what the tests hold us to. Fetches them into build/oracle/ the first time.
set -eu
cd "$(dirname "$0")/.."
model=build/models/SmolLM2-135M-Instruct.Q4_1.gguf

sh tools/oracle/oracle_setup.sh
python=build/oracle/venv/bin/python
"$python" -c 'import gguf' 2>/dev/null || "$python" -m pip install -q --disable-pip-version-check gguf==0.19.0

echo "== tomllib"
"$python" tools/oracle/toml_reference.py
echo "== gguf"
"$python" tools/oracle/gguf_reference.py "$model" >build/oracle/gguf_smollm2.txt
cmp build/oracle/gguf_smollm2.txt tests/golden/gguf_smollm2.txt
echo "== products in exact rationals"
"$python" tools/oracle/products_reference.py >build/oracle/products_reference.txt
cmp build/oracle/products_reference.txt tests/golden/products_reference.txt
echo "== gguf, made models"
"$python" tools/oracle/made_reference.py "$model"
echo "== tokenizers"
"$python" tools/oracle/tokenizer_reference.py
echo "== chat template"
"$python" tools/oracle/chat_reference.py
echo "== llama.cpp"
"$python" tools/oracle/llama_reference.py
"$python" tools/oracle/llama_f32_reference.py
echo "== llama.cpp, experts"
"$python" tools/oracle/expert_reference.py
git diff --exit-code --stat -- tests/golden && echo "The references say what tests/golden/ holds"
