#!/bin/sh
# setup.sh    Puts into .build/gpu what tests/gpu needs: python/ with two implementations of WebGPU,
# and, on Debian 12, vulkan/ with a GPU in software. Nothing is installed outside of that folder.
#
# Debian's own Mesa is too old: that of its backports is used, whichever version it has.
set -eu
cd "$(dirname "$0")/../.."
folder=$PWD/.build/gpu
mkdir -p "$folder"
.build/venv/bin/python -c 'import tomllib
print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["gpu"], sep="\n")' \
  > "$folder/requirements.txt"
.build/venv/bin/python -m pip --quiet --disable-pip-version-check install --upgrade --no-deps \
  --target "$folder/python" -r "$folder/requirements.txt"
[ -e "$folder/lavapipe.json" ] && exit 0
command -v apt-get > /dev/null && command -v dpkg > /dev/null || {
  echo "lavapipe: this is not Debian" >&2
  exit 1
}
apt=$folder/apt
mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/none" "$apt/packages"
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Codename: bookworm' | head -n 1)
for suite in bookworm bookworm-backports; do
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main"
done > "$apt/sources.list"
apt_get() {
  apt-get -qq -o Dir::Etc::SourceList="$apt/sources.list" -o Dir::Etc::SourceParts="$apt/none" \
    -o Dir::State::Lists="$apt/lists" -o Dir::Cache="$apt/cache" -o APT::Sandbox::User= "$@"
}
apt_get update
(cd "$apt/packages" && apt_get download libvulkan1 mesa-vulkan-drivers/bookworm-backports \
  libllvm15 libz3-4 libdrm2 libdrm-amdgpu1 libelf1 libwayland-client0 libx11-xcb1 libxcb1 \
  libxcb-dri3-0 libxcb-present0 libxcb-randr0 libxcb-shm0 libxcb-sync1 libxcb-xfixes0 \
  libxshmfence1 libedit2 libbsd0 libmd0 libxau6 libxdmcp6)
for package in "$apt"/packages/*.deb; do dpkg -x "$package" "$folder/vulkan"; done
library=$(find "$folder/vulkan" -name libvulkan_lvp.so)
icd=$(find "$folder/vulkan" -name 'lvp_icd*.json')
sed "s#\"library_path\": \"[^\"]*\"#\"library_path\": \"$library\"#" "$icd" > "$folder/lavapipe.json"
