#!/bin/sh
# need.sh WHAT:PACKAGE ...   Makes sure that each WHAT (a command or a path) exists; installs the Debian PACKAGE if it does not.
# As root on Debian it installs; elsewhere it prints what is missing and how to get it, and exits with 1.
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

# One at a time, since recipes run in parallel; and wait while another process installs.
if command -v flock >/dev/null; then exec 8>"${TMPDIR:-/tmp}/edgewise-need.lock"; flock 8; fi
echo "installing$packages"
install() {
  DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=600 install -y --no-install-recommends $packages
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# Package lists that are missing or old make the first try fail: fetch them, then try again.
install >"$log" 2>&1 || { apt-get -qq update >>"$log" 2>&1; install >>"$log" 2>&1; } || { tail -20 "$log" >&2; exit 1; }
