// SPDX-License-Identifier: Apache-2.0
// The guest's address space: allocations (memory.c), and which of their bytes were written
// (written.c).
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
    SIM_REGION_REGISTERED, // hipHostRegister: the program's own memory, at any address
} sim_region_kind;

/** Which of its bytes have been written (written.c). */
typedef struct sim_written sim_written;

/** An allocation. Between two of them lies at least one unmapped guard page. */
typedef struct sim_region {
    uint64_t base;          // guest address, 256-byte aligned
    _Atomic uint64_t bytes; // 0 once freed, which may be while waves look
    uint8_t *host;          // of a freed one: null once nobody can use it any more
    uint64_t size;          // as allocated, kept for reports after it was freed
    uint32_t device;
    sim_region_kind kind;
    uint32_t flags;                  // what sim_memory_tag was given
    uint64_t code_start, code_bytes; // guest address of its instructions; 0 bytes: it has none
    uint64_t mapped;         // host memory behind `host`, to the end of a page; 0: just the bytes
    sim_written *written;    // null: all of it counts as written
    struct sim_region *next; // of the freed ones whose host memory is still there
} sim_region;

sim_written *sim_written_create(uint64_t bytes);
/** All counts as written from now on. */
void sim_written_end(sim_written *written);
/** Whether it is written as a whole. */
bool sim_region_is_written(const sim_region *region);
/** How many bytes of a range have been written. For a thread within sim_memory_enter, as what
 *  follows. */
uint64_t sim_region_num_written(const sim_region *region, uint64_t offset, uint64_t bytes);
void sim_region_note_write(const sim_region *region, uint64_t offset, uint64_t bytes);
/** What is copied is as written as where it comes from; `from` null: the program's own memory,
 *  which is. */
void sim_region_note_copy(const sim_region *to, uint64_t to_offset, const sim_region *from,
                          uint64_t from_offset, uint64_t bytes);

sim_memory *sim_memory_create(void);
void sim_memory_destroy(sim_memory *memory);
/** Between enter and leave nothing is taken back, so host addresses stay good. Not for long waits
 *  of the thread that frees. A dispatch and every host copy hold it. */
void sim_memory_enter(sim_memory *memory);
void sim_memory_leave(sim_memory *memory);
/** Around fork: prepare takes the lock, so that the child's copy is whole; parent gives it back,
 *  child makes all locks anew. */
void sim_memory_fork_prepare(sim_memory *memory);
void sim_memory_fork_parent(sim_memory *memory);
void sim_memory_fork_child(sim_memory *memory);
/** New memory, zero-filled, 256-byte aligned; null if the host or the address space has no more. */
const sim_region *sim_memory_alloc(sim_memory *memory, uint64_t bytes, sim_region_kind kind,
                                   uint32_t device);
/** Ends the allocation that begins at addr; false if there is none. Its host memory is given back
 *  when the last of those within sim_memory_enter has left: nobody waits, so a kernel that waits
 *  for the caller does no harm. */
bool sim_memory_retire(sim_memory *memory, uint64_t addr);
/** The same, but waits for those within sim_memory_enter where very much memory is due to be given
 *  back. */
bool sim_memory_free(sim_memory *memory, uint64_t addr);
/** Keeps the flags that the allocation at addr was made with. Before its address is given out. */
void sim_memory_tag(sim_memory *memory, uint64_t addr, uint32_t flags);
/** Keeps where the instructions of a code object's image lie. */
void sim_memory_tag_code(sim_memory *memory, uint64_t addr, uint64_t start, uint64_t bytes);
/** Whether device memory allocated from now on may be read to the end of its last 64 KiB, as a
 *  driver maps it. */
void sim_memory_keep_pages(sim_memory *memory, bool on);
/** Whether device memory allocated from now on is unwritten at first. Off: all memory counts as
 *  written, for good. */
void sim_memory_note_writes(sim_memory *memory, bool on);
/** The host has written a range, which lies in one allocation. */
void sim_memory_wrote(const sim_memory *memory, uint64_t addr, uint64_t bytes);
/** The same by a copy from anywhere. */
void sim_memory_copied(const sim_memory *memory, uint64_t to, uint64_t from, uint64_t bytes);
/** Host address of bytes that begin in an allocation's pages, though they may lie behind it; null
 *  if there are none. */
void *sim_memory_page_host(const sim_memory *memory, uint64_t addr, uint64_t bytes);
/** Lets the guest see the program's own memory, at its own address. False without memory, or, with
 *  *is_known set, if the guest sees a part of it already. */
bool sim_memory_register(sim_memory *memory, void *host, uint64_t bytes, uint32_t device,
                         bool *is_known);
/** Takes back what was registered from `host` on; false if nothing was. Waits for running
 *  dispatches. */
bool sim_memory_unregister(sim_memory *memory, void *host);
/** Frees every allocation of a kind on a device. */
void sim_memory_free_all(sim_memory *memory, sim_region_kind kind, uint32_t device);
/** The live allocation that holds addr, or null. */
const sim_region *sim_memory_find(const sim_memory *memory, uint64_t addr);
/** Whether addr is in the range of device allocations, live or not, where the host maps nothing. */
bool sim_memory_is_guest(uint64_t addr);
/** The allocation within a page of addr that is nearest to it, live or freed; false if there is
 *  none. */
bool sim_memory_nearest(sim_memory *memory, uint64_t addr, sim_region *out);
/** Whether addr lies in an allocation that was freed. For a thread within sim_memory_enter. */
bool sim_memory_was_freed(const sim_memory *memory, uint64_t addr);
/** Says where `bytes` at addr lie: "12 bytes past the end of a 4096-byte allocation at
 *  0x400000010000". A region of size 0 stands for none. */
void sim_region_describe(const sim_region *region, uint64_t addr, uint64_t bytes, char *text,
                         size_t text_bytes);
/** Live bytes of hipMalloc's kind on a device. */
uint64_t sim_memory_used(sim_memory *memory, uint32_t device);
/** Host address of `bytes` of guest memory at `addr`, or null if any byte is outside a live
 * allocation. */
void *sim_memory_host(const sim_memory *memory, uint64_t addr, uint64_t bytes);

#endif
