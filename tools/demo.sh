#!/bin/sh
# A cluster on this machine: a coordinator without layers and three nodes, each with a third of the model's, fetched from it. They answer one question.
# Usage: sh tools/demo.sh [QUESTION]. Everything it starts and writes is in build/demo/, and stopped when it ends.
set -eu
cd "$(dirname "$0")/.."
question=${1:-What is the capital of France, and what is it known for?}
hearth=build/bin/hearth
model=build/models/SmolLM2-135M-Instruct.Q4_1.gguf
dir=build/demo
pids=

fail() {
	echo "demo: $*" >&2
	for log in "$dir"/*.log; do
		[ -s "$log" ] && printf -- '--- the end of %s\n' "$log" >&2 && tail -n 15 "$log" >&2
	done
	exit 1
}

stop_all() {
	trap - EXIT INT TERM
	for pid in $pids; do
		kill "$pid" 2>/dev/null || true
	done
	# They leave in an orderly way within a second or two; what does not is killed, so that nothing is left behind.
	for pid in $pids; do
		i=0
		while kill -0 "$pid" 2>/dev/null && [ $i -lt 100 ]; do
			sleep 0.1
			i=$((i + 1))
		done
		kill -9 "$pid" 2>/dev/null || true
		wait "$pid" 2>/dev/null || true
	done
}
trap stop_all EXIT
trap 'stop_all; exit 130' INT TERM

# wait_for SECONDS WHAT COMMAND...: until the command succeeds; a process of ours that ends meanwhile is a failure.
wait_for() {
	tries=$(($1 * 10))
	what=$2
	shift 2
	until "$@"; do
		tries=$((tries - 1))
		[ $tries -gt 0 ] || fail "waited in vain for $what"
		for pid in $pids; do
			kill -0 "$pid" 2>/dev/null || fail "a process ended while waiting for $what"
		done
		sleep 0.1
	done
}

answers() {
	"$hearth" status --state "$dir/coordinator" --json >"$dir/status.json" 2>"$dir/status.err"
}

# json_says 'key *: *value': in the last status.
is_ready() {
	answers && grep -Eq '"ready": *true' "$dir/status.json"
}

rm -rf "$dir"
mkdir -p "$dir"

echo "Starting a coordinator, which has the model, and three nodes, which fetch their layers of it (logs in $dir/)"
"$hearth" serve "$model" --state "$dir/coordinator" --no-node --nodes 3 --plan even --listen 127.0.0.1:0 --no-discovery --no-http \
	2>"$dir/coordinator.log" >"$dir/coordinator.out" &
pids="$pids $!"
wait_for 60 "the coordinator" answers

# An invite is a secret for one node: it goes through a file that only we can read, never through an argument.
umask 077
for name in kitchen attic cellar; do
	"$hearth" invite --state "$dir/coordinator" --no-qr >"$dir/$name.invite" 2>"$dir/invite.err" || fail "hearth invite: $(cat "$dir/invite.err")"
	"$hearth" join --no-discovery --state "$dir/$name" --cache "$dir/cache-$name" --name "$name" --listen 127.0.0.1:0 --threads 1 \
		--invite-file "$dir/$name.invite" 2>"$dir/$name.log" >"$dir/$name.out" &
	pids="$pids $!"
done
wait_for 60 "a plan over three nodes" is_ready

"$hearth" status --state "$dir/coordinator"
printf '\n> %s\n' "$question"
"$hearth" run --attach --state "$dir/coordinator" --chat -p "$question" -n 64
