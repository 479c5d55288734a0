#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes a folder to link against in place of this system's C library, so that what is linked runs with glibc 2.28 and later:
#   release/sysroot.sh PYTHON FOLDER     PYTHON has the package ziglang
# zig carries lists of what each glibc exports and in which version, makes stub libraries of them, and compiles glibc's own start files
# for programs of that age. Only those libraries and files are used: clang 22 compiles and links.
set -euo pipefail
python=$(realpath -s "${1:?}") folder=$(realpath -m "${2:?}")
glibc=2.28
libraries=(libc.so.6 libm.so.6 libpthread.so.0 libdl.so.2 librt.so.1 libld.so.2)

[ "$folder/complete" -nt "$0" ] && exit 0
rm -rf "$folder"
mkdir -p "$folder/usr/lib" "$folder/scratch"
cd "$folder/scratch" # zig then names files from here, without blanks
export ZIG_GLOBAL_CACHE_DIR=global ZIG_LOCAL_CACHE_DIR=local
echo 'int main(void) { return 0; }' > main.c
# The program is not used, so zig's own runtime libraries, which take it long to make, are left out.
"$python" -m ziglang build-exe main.c -lc -target "x86_64-linux-gnu.$glibc" -O ReleaseSmall -fllvm -flld -fno-compiler-rt -fno-ubsan-rt \
  --verbose-link > log 2>&1 || { cat log >&2; exit 1; }

# zig tells its linker's arguments, which name every file.
linked=$(grep '^ld\.lld ' log | tr ' ' '\n')
for file in crt1.o libc_nonshared.a "${libraries[@]}"; do
  path=$(grep "/$file\$" <<< "$linked" | head -n 1)
  [ -n "$path" ] || { echo "sysroot: zig links no $file:" >&2; cat log >&2; exit 1; }
  cp "$path" "../usr/lib/$file"
done
# Their debug information names the scratch folder, and would be in the sum by which a debugger knows each linked file, its build ID.
llvm-strip-22 --strip-debug ../usr/lib/{crt1.o,libc_nonshared.a}
cd ../usr/lib
mv libld.so.2 ld-linux-x86-64.so.2
cp crt1.o Scrt1.o
cp "$(clang-22 -print-file-name=crti.o)" "$(clang-22 -print-file-name=crtn.o)" .
echo 'GROUP ( libc.so.6 libc_nonshared.a AS_NEEDED ( ld-linux-x86-64.so.2 ) )' > libc.so
for library in libm.so.6 libpthread.so.0 libdl.so.2 librt.so.1; do
  ln -s "$library" "${library%.so*}.so"
done
rm -rf ../../scratch
touch ../../complete
