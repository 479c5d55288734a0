// SPDX-License-Identifier: Apache-2.0
// What this system's static libraries ask of a glibc later than 2.28, for a release that has to run
// without it (release/sysroot.sh).
//
// libstdc++ and libgcc's unwinder stand in quern-decoder beside LLVM, which throws no exception.

/** glibc 2.32: whether no thread was ever made; if not known, atomic instructions are right. */
extern char __libc_single_threaded;
char __libc_single_threaded = 0;

/** glibc 2.35: finds the unwind table of an address. Returns -1: there is none, so that an
 *  exception ends the process, as one that nobody catches does. */
extern int _dl_find_object(void *address, void *result);
int _dl_find_object(void *address, void *result) {
    (void)address, (void)result;
    return -1;
}
