#!/bin/sh
# need.sh WHAT:PACKAGE ...   Installs the Debian PACKAGE for each WHAT (a command or a path) that is
# missing. If it is not run as root on Debian, it prints what is missing and how to install it, and
# exits with 1.
set -eu

packages= names=
for pair in "$@"; do
  what=${pair%%:*} package=${pair#*:}
  if [ -n "$what" ] && { command -v "$what" >/dev/null || [ -e "$what" ]; }; then continue; fi
  packages="$packages $package" names="$names ${what:-$package}"
done
[ -n "$packages" ] || exit 0

if ! command -v apt-get >/dev/null; then
  echo "missing:$names" >&2
  echo "  This is no Debian, so nothing was installed. Get them from your system's packages (Debian calls them:$packages)." >&2
  exit 1
elif [ "$(id -u)" != 0 ]; then
  echo "missing:$names" >&2
  echo "  You are not root, so nothing was installed. Get them with:  sudo apt-get install$packages" >&2
  exit 1
fi

# Make runs recipes in parallel: install one package list at a time, and wait for other processes.
if command -v flock >/dev/null; then exec 8>"${TMPDIR:-/tmp}/edgewise-need.lock"; flock 8; fi
echo "installing$packages"
install() {
  DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=600 install -y --no-install-recommends $packages
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# The first attempt fails if the package lists are missing or old: fetch them and try again.
install >"$log" 2>&1 || { apt-get -qq update >>"$log" 2>&1; install >>"$log" 2>&1; } || { tail -20 "$log" >&2; exit 1; }
