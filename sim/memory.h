// SPDX-License-Identifier: Apache-2.0
// The guest's address space: allocations (memory.c), and a record of which of their bytes were
// written (written.c).
#ifndef SIM_MEMORY_H
#define SIM_MEMORY_H

#include <stddef.h>
#include <stdint.h>

typedef struct sim_memory sim_memory; // a guest address space, shared by the devices of a process

typedef enum sim_region_kind {
    SIM_REGION_DEVICE, // hipMalloc
    SIM_REGION_HOST,   // hipHostMalloc: the guest address is the host's
    SIM_REGION_CODE,   // a code object's image
    SIM_REGION_KERNARG,
    SIM_REGION_MANAGED,    // hipMallocManaged: as SIM_REGION_HOST
    SIM_REGION_REGISTERED, // hipHostRegister: the program's own memory, at any address
    SIM_REGION_IMPORTED,   // device memory of another process
    SIM_REGION_VIRTUAL,    // a part of a reserved range; its host memory is the caller's
} sim_region_kind;

/** Returns whether memory of a kind, allocated here, has the same address for guest and host. */
static inline bool sim_is_shared_kind(sim_region_kind kind) {
    return kind == SIM_REGION_HOST || kind == SIM_REGION_MANAGED;
}

/** The bytes of an allocation that have been written (written.c). */
typedef struct sim_written sim_written;

/** An allocation. Between two allocations lies at least one unmapped guard page. */
typedef struct sim_region {
    uint64_t base;          // guest address, 256-byte aligned
    _Atomic uint64_t bytes; // 0 once freed; waves may look at it while it is being freed
    uint8_t *host;          // host memory; null once it is freed and nobody can use it any more
    uint64_t size;          // size as allocated, kept for reports after the memory was freed
    uint32_t device;
    sim_region_kind kind;
    uint32_t flags;                  // flags that sim_memory_tag was given
    uint64_t code_start, code_bytes; // guest address and size of instructions; 0 bytes: none
    uint64_t mapped;         // bytes of host memory at `host`, whole pages; 0: just `size` bytes
    bool is_shared;          // the host memory is that of a file, which other processes may map
    int fd;                  // of the file, which the allocation owns
    sim_written *written;    // null: all bytes count as written
    struct sim_region *next; // next freed allocation whose host memory is still there
} sim_region;

sim_written *sim_written_create(uint64_t bytes);
/** Counts all bytes as written from now on. */
void sim_written_end(sim_written *written);
/** Returns whether all bytes of the allocation have been written. */
bool sim_region_is_written(const sim_region *region);
// The next three functions are for threads between sim_memory_enter and sim_memory_leave.
/** Returns how many bytes of a range have been written. */
uint64_t sim_region_num_written(const sim_region *region, uint64_t offset, uint64_t bytes);
/** Notes that a range has been written. */
void sim_region_note_write(const sim_region *region, uint64_t offset, uint64_t bytes);
/** Notes a copy: a copied byte counts as written if its source does. A null `from` stands for the
 *  program's own memory, which counts as written. */
void sim_region_note_copy(const sim_region *to, uint64_t to_offset, const sim_region *from,
                          uint64_t from_offset, uint64_t bytes);

sim_memory *sim_memory_create(void);
void sim_memory_destroy(sim_memory *memory);
/** Keeps host addresses good: until sim_memory_leave, no host memory is given back. A dispatch and
 *  every copy by the host stand between enter and leave. A thread that frees memory must not wait
 *  long in there. */
void sim_memory_enter(sim_memory *memory);
void sim_memory_leave(sim_memory *memory);
/** Called around fork. prepare takes the lock, so that the child's copy is whole; parent gives the
 *  lock back; child makes all locks anew. */
void sim_memory_fork_prepare(sim_memory *memory);
void sim_memory_fork_parent(sim_memory *memory);
void sim_memory_fork_child(sim_memory *memory);
/** Allocates memory, zero-filled and 256-byte aligned. Returns null if the host or the address
 *  space has no more. */
const sim_region *sim_memory_alloc(sim_memory *memory, uint64_t bytes, sim_region_kind kind,
                                   uint32_t device);
/** Makes a file of zeros in memory, in pages of 64 KiB. Returns its descriptor; -1 on failure.
 *  (memory_file.c) */
int sim_memory_file(uint64_t bytes);
/** Returns whether a descriptor is that of such a file, of any process; its size. */
bool sim_memory_is_file(int fd, uint64_t *bytes);
/** Maps a file, at `host` if that is not null. Returns null on failure. */
void *sim_memory_map_file(void *host, int fd, uint64_t bytes);
/** Moves the host memory of the device allocation that begins at addr to a file, if it is not there
 *  yet. Returns the descriptor, which stays the allocation's; -1 if there is no such allocation, or
 *  no memory. Waits for running dispatches. */
int sim_memory_share(sim_memory *memory, uint64_t addr);
/** Makes an allocation of a file's memory, of kind SIM_REGION_IMPORTED. On success the descriptor
 *  is the allocation's. */
const sim_region *sim_memory_open(sim_memory *memory, int fd, uint64_t bytes, uint32_t device);
/** Reserves addresses, at a multiple of `alignment`, a power of two of at least 64 KiB. Returns 0
 *  if none are left. Nobody else gets them, so that there is no call to give them back. */
uint64_t sim_memory_reserve(sim_memory *memory, uint64_t bytes, uint64_t alignment);
/** Waits for running dispatches and copies, and holds others back until sim_memory_go. Between
 *  these the program may change which parts of a reserved range have memory. */
void sim_memory_stop(sim_memory *memory);
void sim_memory_go(sim_memory *memory);
/** Lets the guest see a part of a reserved range, in whole pages of 64 KiB, until the part is
 *  retired. Returns false without memory. */
bool sim_memory_show(sim_memory *memory, uint64_t base, uint64_t bytes, void *host,
                     uint32_t device);
/** Counts bytes that are no allocation's as used on a device; negative: no longer. */
void sim_memory_count(sim_memory *memory, uint32_t device, int64_t bytes);
/** Allocates as sim_memory_alloc does, at an address that was reserved. */
const sim_region *sim_memory_alloc_at(sim_memory *memory, uint64_t base, uint64_t bytes,
                                      sim_region_kind kind, uint32_t device);
/** Ends the allocation that begins at addr. Returns false if there is none. Host memory is given
 *  back when the last thread that has entered the memory leaves it. The call does not wait for
 *  these threads, so that a kernel may wait for the caller. */
bool sim_memory_retire(sim_memory *memory, uint64_t addr);
/** Ends an allocation as sim_memory_retire does, but waits for the threads that have entered the
 *  memory if very much host memory is due to be given back. */
bool sim_memory_free(sim_memory *memory, uint64_t addr);
/** Stores the flags with which the allocation at addr was made. Called before the address is given
 *  out. */
void sim_memory_tag(sim_memory *memory, uint64_t addr, uint32_t flags);
/** Stores where the instructions of the code object's image at addr lie. */
void sim_memory_tag_code(sim_memory *memory, uint64_t addr, uint64_t start, uint64_t bytes);
/** Says whether device memory allocated from now on may be read to the end of its last 64 KiB, as
 *  drivers map memory. */
void sim_memory_keep_pages(sim_memory *memory, bool on);
/** Says whether device memory allocated from now on is unwritten at first. Off: all memory counts
 *  as written, for good. */
void sim_memory_note_writes(sim_memory *memory, bool on);
/** Notes that the host has written a range, which lies in one allocation. */
void sim_memory_wrote(const sim_memory *memory, uint64_t addr, uint64_t bytes);
/** Notes that a copy has written a range, as sim_region_note_copy does; `from` is any address. */
void sim_memory_copied(const sim_memory *memory, uint64_t to, uint64_t from, uint64_t bytes);
/** Returns the host address of bytes that lie in the pages of an allocation, even if they lie
 *  behind its end; null if they lie in no allocation's pages. */
void *sim_memory_page_host(const sim_memory *memory, uint64_t addr, uint64_t bytes);
/** Lets the guest see the program's own memory, at the host's address. Returns false if memory runs
 *  out, or, with *is_known set, if the guest sees a part of this memory already. */
bool sim_memory_register(sim_memory *memory, void *host, uint64_t bytes, uint32_t device,
                         bool *is_known);
/** Ends the registration of memory that begins at `host`. Returns false if there is none. Waits for
 *  running dispatches. */
bool sim_memory_unregister(sim_memory *memory, void *host);
/** Frees every allocation of a kind on a device. */
void sim_memory_free_all(sim_memory *memory, sim_region_kind kind, uint32_t device);
/** Returns the live allocation that holds addr, or null. */
const sim_region *sim_memory_find(const sim_memory *memory, uint64_t addr);
/** Returns whether addr is in the range of device allocations, live or not, where the host maps
 *  nothing. */
bool sim_memory_is_guest(uint64_t addr);
/** Finds the allocation, live or freed, that is nearest to addr. Returns false if there is none
 *  within a page. */
bool sim_memory_nearest(sim_memory *memory, uint64_t addr, sim_region *out);
/** Returns whether addr lies in an allocation that was freed. For threads that have entered the
 *  memory. */
bool sim_memory_was_freed(const sim_memory *memory, uint64_t addr);
/** Writes where `bytes` at addr lie: "12 bytes past the end of a 4096-byte allocation at
 *  0x400000010000". A region of size 0 stands for no allocation. */
void sim_region_describe(const sim_region *region, uint64_t addr, uint64_t bytes, char *text,
                         size_t text_bytes);
/** Returns the bytes of live allocations of hipMalloc's kind on a device. */
uint64_t sim_memory_used(sim_memory *memory, uint32_t device);
/** Returns the host address of `bytes` of guest memory at `addr`, or null if any of these bytes is
 *  outside a live allocation. */
void *sim_memory_host(const sim_memory *memory, uint64_t addr, uint64_t bytes);

#endif
