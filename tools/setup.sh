#!/bin/sh
# Installs the Debian packages that are missing, and only those. Usage: sh tools/setup.sh SET...
#   build   compiler and libraries of the program
#   model   what fetches the demo model
#   check   test framework, sanitizers, fuzzer, and a second architecture's libraries with an emulator
# Needs nothing but sh and dpkg; asks no mirror when nothing is missing.
set -eu

arch=$(dpkg --print-architecture 2>/dev/null) || arch=
libs="libnng-dev libsodium-dev libprotobuf-c-dev libmicrohttpd-dev libjansson-dev libpcre2-dev libsqlite3-dev libqrencode-dev libzstd-dev"

packages=
foreign=
for set in "$@"; do
	case $set in
	build) packages="$packages gcc libc6-dev binutils protobuf-c-compiler libavahi-client-dev $libs" ;;
	model) packages="$packages python3 python3-venv python3-pip" ;;
	check)
		packages="$packages libcmocka-dev clang libclang-rt-14-dev clang-format python3 python3-venv python3-pip"
		if [ "$arch" != arm64 ]; then
			packages="$packages qemu-user-static gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
			for lib in $libs libcmocka-dev; do
				packages="$packages $lib:arm64"
			done
			foreign=arm64
		fi
		;;
	*)
		echo "tools/setup.sh: no set of packages is called '$set' (build, model, check)" >&2
		exit 2
		;;
	esac
done

if [ -z "$arch" ]; then
	echo "tools/setup.sh: this is not Debian or a relative of it; the packages wanted are, by their Debian names:$packages" >&2
	echo "tools/setup.sh: install them your way, then run 'make' itself" >&2
	exit 1
fi

# One query for all; a package dpkg never heard of makes it fail, which says nothing about the others.
installed=$(dpkg-query -W -f='${db:Status-Abbrev} ${Package} ${Package}:${Architecture} \n' 2>/dev/null | sed -n 's/^ii *//p')
missing=
for p in $packages; do
	case " $missing " in *" $p "*) continue ;; esac
	case "
$installed" in
	*"
$p "* | *" $p "*) ;;
	*) missing="$missing $p" ;;
	esac
done
missing=${missing# }
[ -n "$missing" ] || exit 0

sudo=
if [ "$(id -u)" != 0 ]; then
	if ! command -v sudo >/dev/null 2>&1; then
		echo "tools/setup.sh: missing: $missing" >&2
		echo "tools/setup.sh: run this as root, or install sudo" >&2
		exit 1
	fi
	sudo=sudo
fi

apt() {
	$sudo env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=600 "$@"
}

echo "Installing with apt-get, because they are missing: $missing"
case "$missing" in
*:arm64*)
	if ! dpkg --print-foreign-architectures | grep -qx "$foreign"; then
		echo "Adding $foreign as a second architecture (dpkg --add-architecture $foreign), for the tests on it"
		$sudo dpkg --add-architecture "$foreign"
	fi
	;;
esac
apt update
# shellcheck disable=SC2086 # a list of words
apt install -y --no-install-recommends $missing
