# SPDX-License-Identifier: Apache-2.0
# Sourced by setup.sh: what each system calls the packages that quern needs, whether they are installed, and where clang is to be had.
# shellcheck shell=bash
oldest_clang=22 newest_clang=25 oldest_cmake=3.25 oldest_python=3.11 # the last: numpy's, for tests

system_id=unknown system_name="this system" codename="" manager=""

# Reads which system this is: Debian's family, Fedora's (RHEL's too) or Arch's.
read_system() {
  local ID="" ID_LIKE="" PRETTY_NAME="" VERSION_CODENAME="" VERSION_ID=""
  # shellcheck disable=SC1091
  [ ! -r /etc/os-release ] || . /etc/os-release
  system_id=${ID:-unknown} system_name=${PRETTY_NAME:-$system_name} codename=$VERSION_CODENAME
  case " $ID $ID_LIKE " in
    *" debian "* | *" ubuntu "*) manager=apt-get ;;
    *" rhel "* | *" centos "*) manager=dnf; [ "$ID" = fedora ] || system_id=rhel ;;
    *" fedora "*) manager=dnf ;;
    *" arch "*) manager=pacman ;;
  esac
  [ -z "$manager" ] || command -v $manager > /dev/null || manager=""
}

# at_least VERSION OLDEST: whether a version is OLDEST or later.
at_least() {
  [ -n "$1" ] && [ "$(printf '%s\n' "$2" "$1" | sort -V | head -1)" = "$2" ]
}

# candidate PACKAGE: prints the version that would be installed; nothing if the package sources have none.
candidate() {
  case $manager in
    apt-get) apt-cache policy "$1" | sed -n 's/^  Candidate: \([0-9]*:\)\{0,1\}\([0-9].*\)/\2/p' ;;
    dnf) dnf -q repoquery --qf '%{version}\n' "$1" 2> /dev/null | sort -V | tail -1 ;;
    pacman) pacman -Si "$1" 2> /dev/null | sed -n 's/^Version *: \([0-9]*:\)\{0,1\}//p' | head -1 ;;
  esac
}

# absent PACKAGE...: prints those that are not installed. A thread pool that was built by hand counts.
absent() {
  local p
  case $manager in
    apt-get) for p; do dpkg-query -W -f='${Status}' "$p" 2> /dev/null | grep 'ok installed' > /dev/null || echo "$p"; done ;;
    dnf) for p; do rpm -q --whatprovides "$p" > /dev/null 2>&1 || echo "$p"; done ;;
    pacman) pacman -T "$@" || true ;;
  esac | if [ -e /usr/local/include/pthreadpool.h ]; then grep -v pthreadpool || true; else cat; fi
}

# refresh: fetches the lists of packages where the manager does not do so by itself.
refresh() {
  case $manager in
    apt-get) "${as_root[@]}" apt-get update -q ;;
    pacman) "${as_root[@]}" pacman -Sy --noconfirm ;;
  esac
}

install_packages() {
  case $manager in
    apt-get) "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" ;;
    dnf) "${as_root[@]}" dnf install -y -q --setopt=install_weak_deps=False "$@" ;;
    pacman) "${as_root[@]}" pacman -S --needed --noconfirm "$@" ;;
  esac
}

# ---- LLVM

# clang_of MAJOR: the package of that major version; of "", the system's own.
clang_of() {
  [ $manager = apt-get ] && echo "clang-$1" || echo "clang$1"
}

llvm_packages_of() {
  case $manager in
    apt-get) echo "clang-$1 lld-$1 llvm-$1-dev libclang-rt-$1-dev clang-format-$1 clang-tools-$1" ;;
    dnf) echo "clang$1 lld$1 llvm$1-devel llvm$1-static compiler-rt$1 clang$1-tools-extra" ;;
    pacman) echo "clang lld llvm compiler-rt" ;;
  esac
}

# choose_llvm: sets llvm_packages to those of the first major version that is installed, else of the first that can be; fails without any.
choose_llvm() {
  local majors major version
  majors=$(seq $oldest_clang $newest_clang)
  [ $manager = apt-get ] && for major in $majors; do
    [ -n "$(absent "clang-$major" "llvm-$major-dev")" ] || { read -ra llvm_packages <<< "$(llvm_packages_of "$major")"; return; }
  done
  for major in $([ $manager = apt-get ] || echo own) $([ $manager = pacman ] || echo "$majors"); do
    major=${major#own}
    version=$(candidate "$(clang_of "$major")")
    at_least "$version" $oldest_clang && { read -ra llvm_packages <<< "$(llvm_packages_of "$major")"; return; }
  done
  return 1
}

# newest_offered: the newest clang that the package sources have, for the message.
newest_offered() {
  case $manager in
    apt-get) apt-cache search --names-only '^clang-[0-9]+$' | sed -n 's/^clang-\([0-9]*\) .*/\1/p' | sort -n | tail -1 ;;
    *) candidate clang ;;
  esac
}

explain_clang() {
  local offered
  offered=$(newest_offered)
  echo "setup: quern needs clang $oldest_clang or later; the package sources of $system_name ($manager) have ${offered:-none}${offered:+ at most}."
  case $system_id in
    debian | ubuntu) echo "  tools/setup.sh --apt-llvm   takes LLVM's own packages: it adds the source apt.llvm.org for '$codename'" ;;
    fedora) echo "  Fedora has clang 22 from release 44 on" ;;
  esac
  echo "  ROCm 7.2 or later   has a clang of version 22, which is taken from ROCM_PATH, /opt/rocm or /opt/rocm-*"
  echo "  any other clang $oldest_clang   with lld and llvm-config beside it: cmake --preset release -DCMAKE_C_COMPILER=FILE"
  echo "  no compiler at all: pip install the release's wheel (docs/releases.md), or a container (docs/containers.md)"
}

# add_apt_llvm: adds LLVM's package source.
add_apt_llvm() {
  [ $manager = apt-get ] || { echo "setup: --apt-llvm is for Debian and Ubuntu; this is $system_name" >&2; exit 2; }
  [ -n "$codename" ] || { echo "setup: --apt-llvm: /etc/os-release has no VERSION_CODENAME" >&2; exit 1; }
  local key
  key=$(mktemp)
  "${as_root[@]}" apt-get update -q
  install_packages ca-certificates curl
  curl -fsSL -o "$key" https://apt.llvm.org/llvm-snapshot.gpg.key ||
    { echo "setup: could not fetch the key of apt.llvm.org; is there a network?" >&2; rm "$key"; exit 1; }
  "${as_root[@]}" install -m 644 "$key" /etc/apt/keyrings/apt.llvm.org.asc
  rm "$key"
  echo "deb [signed-by=/etc/apt/keyrings/apt.llvm.org.asc] http://apt.llvm.org/$codename/ llvm-toolchain-$codename-$oldest_clang main" |
    "${as_root[@]}" tee /etc/apt/sources.list.d/apt.llvm.org.list
}

# ---- the rest

# first_of PACKAGE...: prints the first that is installed, else the first that can be, else the last.
first_of() {
  local p
  for p; do [ -n "$(absent "$p")" ] || { echo "$p"; return; }; done
  for p; do [ -z "$(candidate "$p")" ] || { echo "$p"; return; }; done
  echo "$p"
}

# other_packages: prints what is needed beside LLVM. What each is for stands in docs/design.md.
other_packages() {
  case $manager in
    apt-get) echo g++ make cmake ninja-build pkg-config libcmocka-dev "$(first_of libmsgpack-c-dev libmsgpack-dev)" libjansson-dev \
      libxxhash-dev libpthreadpool-dev zstd libzstd-dev zlib1g-dev python3 python3-venv python3-pip unzip ;;
    dnf) echo gcc-c++ libstdc++-static make cmake ninja-build pkgconf-pkg-config libcmocka-devel \
      "$(first_of msgpack-c-devel msgpack-devel)" jansson-devel xxhash-devel pthreadpool-devel zstd libzstd-devel zlib-devel \
      python3 python3-pip unzip findutils diffutils ;;
    pacman) echo gcc make cmake ninja pkgconf cmocka msgpack-c jansson xxhash pthreadpool zstd zlib python python-pip unzip ;;
  esac
}

# newer_python: prints the packages of a Python that the tests' packages run on, if the system's own is older.
newer_python() {
  local minor
  case $manager in
    apt-get) at_least "$(candidate python3)" $oldest_python ;;
    dnf) at_least "$(candidate python3)" $oldest_python ;;
    pacman) true ;;
  esac && return
  for minor in 12 13 11; do
    [ -n "$(candidate "python3.$minor")" ] || continue
    [ $manager = dnf ] && echo "python3.$minor python3.$minor-pip" || echo "python3.$minor python3.$minor-venv"
    return
  done
}

# find_python: prints the first Python of that version.
find_python() {
  local name
  for name in python3 python3.12 python3.13 python3.11 python3.14; do
    command -v $name > /dev/null && $name -c "import sys; sys.exit(sys.version_info < (${oldest_python/./, }))" && { echo $name; return; }
  done
  return 1
}

# explain_absent PACKAGE...: says which packages no source has, and where they are to be had; returns 1 if there are any.
explain_absent() {
  local p none=()
  for p; do
    [ -n "$(candidate "$p")" ] || none+=("$p")
  done
  [ ${#none[@]} = 0 ] && return
  echo "setup: the package sources of $system_name ($manager) have no ${none[*]}"
  [ $system_id = ubuntu ] && echo "  many of Ubuntu's lie in universe: add-apt-repository universe"
  [ $system_id = rhel ] && echo "  many lie in CRB and EPEL: dnf install epel-release dnf-plugins-core; dnf config-manager --set-enabled crb"
  case " ${none[*]} " in
    *pthreadpool*) echo "  pthreadpool from its source (https://github.com/google/pthreadpool): cmake -S pthreadpool -B b -DBUILD_SHARED_LIBS=ON" \
      "-DPTHREADPOOL_BUILD_TESTS=OFF -DPTHREADPOOL_BUILD_BENCHMARKS=OFF && cmake --install b --prefix /usr/local" ;;
  esac
  return 1
}
