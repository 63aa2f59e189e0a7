#!/bin/sh
# toolchain.sh   Creates .build/bin/emcc, an Emscripten compiler that needs no environment variables.
#
# It uses the first of these that is available:
#   1. `emcc` on PATH (or in $EMCC), version $oldest or newer;
#   2. Debian's own emscripten package, if it is new enough (Debian 13 and later);
#   3. on Debian 12: its packages clang-19 and lld-19, with emscripten (architecture: all) and
#      binaryen of Debian 13. apt downloads these two into a private state, and they are only
#      unpacked under .build/emscripten: the package lists and libraries of the system are not
#      changed. binaryen is linked against Debian 13's libc, so it is run with that libc's loader.
# Otherwise it prints what is missing and how to install it.
set -eu

oldest=3.1.50   # first release with the relaxed SIMD intrinsics and wasm-ld options of wasm/Makefile
root=$(cd "$(dirname "$0")/.." && pwd)
build=$root/.build
home=$build/emscripten

say() { echo "toolchain: $*"; }
give_up() { echo "toolchain: $*" >&2; exit 1; }
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -1)" = "$2" ]; }
version_of() { "$1" --version 2>/dev/null | sed -nE '1s/.* ([0-9]+\.[0-9]+\.[0-9]+).*/\1/p'; }

mkdir -p "$build/bin"
exec 9>"$build/toolchain.lock"      # of two parallel calls the second waits, and finds the compiler ready
if command -v flock >/dev/null; then flock 9; fi

wrap() {                            # wrap COMMAND...: makes .build/bin/emcc run COMMAND
  printf '#!/bin/sh\n# made by wasm/toolchain.sh\nexec %s "$@"\n' "$*" >"$build/bin/emcc.new"
  chmod +x "$build/bin/emcc.new"
  mv "$build/bin/emcc.new" "$build/bin/emcc"
}

wrap_own() { wrap "env EM_CONFIG='$home/config' EM_BINARYEN_ROOT='$home/binaryen' /usr/bin/python3 '$home/share/emcc.py'"; }

# 1. On PATH, except the wrapper in .build/bin
PATH=$(printf %s "$PATH" | tr : '\n' | grep -vxF "$build/bin" | paste -sd: -)
found=$(command -v "${EMCC:-emcc}" || true)
if [ -n "$found" ]; then
  version=$(version_of "$found")
  if at_least "${version:-0}" $oldest; then
    wrap "'$found'"
    say "emcc $version from $found"
    exit 0
  fi
  say "emcc ${version:-of unknown version} from $found is older than $oldest: not used"
fi

# Installed by an earlier run of step 3
if [ -e "$home/ready" ]; then
  wrap_own
  say "emcc $(cat "$home/ready") in .build/emscripten"
  exit 0
fi

other_ways="Install emsdk (any version from $oldest on) so that \`emcc\` is on PATH, then run this again."
command -v apt-get >/dev/null || give_up "no emcc of at least $oldest on PATH, and this is no Debian. $other_ways"
[ "$(id -u)" = 0 ] || [ -x /usr/bin/clang-19 ] || give_up "no emcc of at least $oldest on PATH. $other_ways
  Or, on Debian 12:  sudo apt-get install clang-19 lld-19 llvm-19 node-acorn   (then run this again)."

# 2. Debian's own package
own=$(apt-cache policy emscripten 2>/dev/null | sed -nE 's/^ *Candidate: ([0-9.]+).*/\1/p')
if [ -n "$own" ] && at_least "$own" $oldest; then
  "$root/.ci/need.sh" emcc:emscripten
  found=$(command -v emcc)
  wrap "'$found'"
  say "emcc $(version_of "$found") from Debian's package"
  exit 0
fi

# 3. Debian 12
"$root/.ci/need.sh" clang-19:clang-19 wasm-ld-19:lld-19 llvm-ar-19:llvm-19 node:nodejs \
  /usr/share/nodejs/acorn:node-acorn
say "clang and lld 19 from Debian's packages"

rm -rf "$home"
mkdir -p "$home/apt/lists/partial" "$home/apt/archives/partial" "$home/binaryen/bin"
cd "$home/apt"
: >status
# The mirror of this machine's own release also has the next release.
find_mirror() {
  apt-get indextargets --format '$(SITE) $(COMPONENT)' 'Created-By: Packages' |
    awk '$2 == "main" && $1 ~ /debian\/?$/ { print $1; exit }'
}
mirror=$(find_mirror)
[ -n "$mirror" ] || { apt-get -qq update; mirror=$(find_mirror); }   # the lists may be missing
[ -n "$mirror" ] || give_up "no Debian mirror in this machine's apt sources. $other_ways"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie main" >sources.list
apt_private() {
  apt-get -qq -o Dir::Etc::sourcelist="$PWD/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State="$PWD" \
    -o Dir::State::status="$PWD/status" -o Dir::Cache="$PWD" -o APT::Sandbox::User=root "$@"
}
apt_private update
apt_private download emscripten binaryen libc6 libstdc++6 libgcc-s1 >/dev/null
say "Debian 13's emscripten and binaryen fetched"

dpkg -x emscripten_*.deb unpacked
mv unpacked/usr/share/emscripten "$home/share"
for deb in binaryen_* libc6_* libstdc++6_* libgcc-s1_*; do dpkg -x "$deb" runtime; done
mv runtime/usr/lib "$home/binaryen/lib"
rm -rf "$home"/share/cache/sysroot/lib/wasm64-emscripten "$home"/share/docs    # saves a gigabyte
loader=$(basename "$home"/binaryen/lib/*/ld-linux*)
libraries=$(basename "$(dirname "$home"/binaryen/lib/*/ld-linux*)")
for tool in runtime/usr/bin/wasm*; do
  name=$(basename "$tool")
  mv "$tool" "$home/binaryen/lib/$name"
  cat >"$home/binaryen/bin/$name" <<EOF
#!/bin/sh
lib=\${0%/*}/../lib
exec "\$lib/$libraries/$loader" --library-path "\$lib/$libraries" "\$lib/$name" "\$@"
EOF
  chmod +x "$home/binaryen/bin/$name"
done
ln -s /usr/share/nodejs "$home/share/node_modules"    # emcc's scripts look for acorn beside themselves
cat >"$home/config" <<EOF
LLVM_ROOT = '/usr/bin'
LLVM_ADD_VERSION = '19'
CLANG_ADD_VERSION = '19'
BINARYEN_ROOT = '$home/binaryen'
NODE_JS = '$(command -v node)'
FROZEN_CACHE = True
EOF
cd "$root"
rm -rf "$home/apt"
wrap_own

version=$(version_of "$build/bin/emcc")
[ -n "$version" ] || give_up "the emcc set up in .build/emscripten does not start: $("$build/bin/emcc" --version 2>&1 | tail -3)"
echo "$version" >"$home/ready"
say "emcc $version in .build/emscripten"
