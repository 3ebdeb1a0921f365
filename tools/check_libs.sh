#!/bin/sh
# Says in one line per library what the build lacks. Usage: CC=gcc [CROSS=aarch64] sh tools/check_libs.sh -lnng ...
set -u
CC=${CC:-gcc}
CROSS=${CROSS:-}
suffix=
[ "$CROSS" = aarch64 ] && suffix=:arm64

if ! command -v "$CC" >/dev/null 2>&1; then
	echo "hearth: compiler '$CC' not found: install it, or run 'make setup' (Debian)" >&2
	exit 1
fi

missing=
packages=
if ! command -v protoc-c >/dev/null 2>&1; then
	missing="protoc-c"
	packages="protobuf-c-compiler"
fi
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

# need LIBRARY HEADER PACKAGE [LINE-BEFORE-THE-INCLUDE]
need() {
	{
		printf '#include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>\n%s\n' "${4:-}"
		printf '#include <%s>\nint main(void) { return 0; }\n' "$2"
	} >"$tmp/t.c"
	if ! "$CC" -w -o "$tmp/t" "$tmp/t.c" ${1:+"$1"} >"$tmp/out" 2>&1; then
		missing="$missing $2"
		packages="$packages $3"
	fi
}

need "" avahi-client/client.h libavahi-client-dev # headers only: the library is loaded when it is used
for lib in "$@"; do
	case $lib in
	-lnng) need $lib nng/nng.h libnng-dev$suffix ;;
	-lmicrohttpd) need $lib microhttpd.h libmicrohttpd-dev$suffix ;;
	-ljansson) need $lib jansson.h libjansson-dev$suffix ;;
	-lsqlite3) need $lib sqlite3.h libsqlite3-dev$suffix ;;
	-lprotobuf-c) need $lib protobuf-c/protobuf-c.h libprotobuf-c-dev$suffix ;;
	-lpcre2-8) need $lib pcre2.h libpcre2-dev$suffix '#define PCRE2_CODE_UNIT_WIDTH 8' ;;
	-lsodium) need $lib sodium.h libsodium-dev$suffix ;;
	-lqrencode) need $lib qrencode.h libqrencode-dev$suffix ;;
	-lzstd) need $lib zstd.h libzstd-dev$suffix ;;
	-lpthread) need $lib pthread.h "libc6-dev${CROSS:+-arm64-cross}" ;;
	-lm) ;; # comes with libc
	*)
		echo "hearth: tools/check_libs.sh knows no library $lib: add a line for it" >&2
		exit 1
		;;
	esac
done

if [ -n "$missing" ]; then
	echo "hearth: not found:$(echo " $missing" | sed 's/  */ /g')" >&2
	echo "hearth: on Debian: 'make setup', or apt-get install$(echo " $packages" | sed 's/  */ /g')" >&2
	exit 1
fi
