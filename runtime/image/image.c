// SPDX-License-Identifier: Apache-2.0
// Kernels: from a reference to a loaded, checked, launchable kernel, found again without locks.
//
// An image is loaded once for each device, under the device's lock. A kernel's contract is checked
// against the code object before its first launch. After that a launch finds the kernel by the
// content of its reference, not by the reference's address, as references may be made at run time.
#include "image.h"

#include "../runtime.h"
#include "jit.h"
#include "object.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/** An image on a device: one entry for each (id, extra defines). */
typedef struct loaded_image {
    char *id, *defines; // copies of its own; defines "" if there are none
    void *data;         // freed with the image
    size_t bytes;
    void *module;
    struct loaded_image *next;
} loaded_image;

typedef struct loaded_kernel {
    qni_kernel_ref ref; // with strings of its own
    uint64_t hash;      // of the reference's strings
    void *native;
    qni_kernel_usage usage;
    atomic_bool was_launched; // since the last call of qni_kernels_evidence
    struct loaded_kernel *next;
} loaded_kernel;

enum { NUM_SLOTS = 1024 };

/** What a device has loaded. The lock guards the lists. Slots are read without the lock, as a slot
 *  that is set stays. */
struct qni_kernel_cache {
    pthread_mutex_t lock;
    loaded_image *images;
    loaded_kernel *kernels;
    _Atomic(loaded_kernel *) slots[NUM_SLOTS];
};

// ---- references

static const char *defines_of(const qni_kernel_ref *ref) {
    return ref->defines ? ref->defines : "";
}

static uint64_t hash_of(const qni_kernel_ref *ref) {
    uint64_t hash = XXH3_64bits(ref->entry, strlen(ref->entry));
    hash = XXH3_64bits_withSeed(ref->image, strlen(ref->image), hash);
    return ref->defines ? XXH3_64bits_withSeed(ref->defines, strlen(ref->defines), hash) : hash;
}

/** Returns whether two references are equal. A kernel with another contract is another kernel, as
 *  it has not been checked against that contract. */
static bool is_same_ref(const qni_kernel_ref *a, const qni_kernel_ref *b) {
    return strcmp(a->entry, b->entry) == 0 && strcmp(a->image, b->image) == 0 &&
           strcmp(defines_of(a), defines_of(b)) == 0 &&
           a->max_scratch_bytes == b->max_scratch_bytes &&
           a->max_sgpr_spills == b->max_sgpr_spills && a->uses_lds_dma == b->uses_lds_dma;
}

static void free_kernel(loaded_kernel *kernel) {
    if (!kernel)
        return;
    free((char *)(uintptr_t)kernel->ref.image);
    free((char *)(uintptr_t)kernel->ref.entry);
    free((char *)(uintptr_t)kernel->ref.defines);
    free(kernel);
}

/** Makes a kernel with a copy of its reference, whose strings may be freed; null: out of
 *  memory. */
static loaded_kernel *make_kernel(const qni_kernel_ref *ref) {
    loaded_kernel *kernel = calloc(1, sizeof *kernel);
    if (!kernel)
        return nullptr;
    kernel->ref = *ref;
    kernel->ref.image = strdup(ref->image);
    kernel->ref.entry = strdup(ref->entry);
    kernel->ref.defines = strdup(defines_of(ref));
    kernel->hash = hash_of(ref);
    if (kernel->ref.image && kernel->ref.entry && kernel->ref.defines)
        return kernel;
    free_kernel(kernel);
    return nullptr;
}

/** Finds a kernel in the table; null if it is not there. */
static loaded_kernel *find_fast(struct qni_kernel_cache *cache, const qni_kernel_ref *ref) {
    const uint64_t hash = hash_of(ref);
    for (size_t i = 0, s = hash % NUM_SLOTS; i < NUM_SLOTS; i++, s = (s + 1) % NUM_SLOTS) {
        loaded_kernel *kernel = atomic_load_explicit(&cache->slots[s], memory_order_acquire);
        if (!kernel || (kernel->hash == hash && is_same_ref(&kernel->ref, ref)))
            return kernel;
    }
    return nullptr;
}

/** Adds a kernel to the table. The lock is held. If the table is full, only the list has the
 *  kernel, which is slower but right. */
static void add_slot(struct qni_kernel_cache *cache, loaded_kernel *kernel) {
    for (size_t i = 0, s = kernel->hash % NUM_SLOTS; i < NUM_SLOTS; i++, s = (s + 1) % NUM_SLOTS)
        if (!atomic_load_explicit(&cache->slots[s], memory_order_relaxed)) {
            atomic_store_explicit(&cache->slots[s], kernel, memory_order_release);
            return;
        }
}

// ---- the contract

/** Checks, where LDS DMA exists (gfx9), that no barrier is reached with a DMA that nobody waited
 *  for. */
static qn_status check_waits(const qn_device *device, const qni_kernel_ref *ref,
                             const qni_object_kernel *kernel) {
    bool is_good = true;
    size_t offset = 0;
    if (!(device->target->features & QNI_F(LDS_DMA)))
        return QN_OK;
    const qn_status st = qni_waits_check(kernel->code, kernel->code_bytes, &is_good, &offset);
    if (st == QN_OK && !is_good)
        return QN_FAIL(
            QN_E_UNSUPPORTED,
            "%s: the barrier at offset 0x%zx can be reached after LDS DMA without a vmcnt "
            "wait: the compiler left it out",
            ref->entry, offset);
    return st;
}

/** Returns how many SGPRs the image's recipe lets its kernels spill on the target. */
static int32_t spills_allowed(const char *id, const qni_target *target) {
    const qni_image_recipe *recipe = qni_image_recipes;
    while (recipe->id && strcmp(recipe->id, id) != 0)
        recipe++;
    for (const char *word = recipe->id ? recipe->sgpr_spills : ""; *word;) {
        const char *equals = strchr(word, '=');
        char *end = nullptr;
        const long most = strtol(equals + 1, &end, 10);
        if (strncmp(target->name, word, (size_t)(equals - word)) == 0)
            return (int32_t)most;
        word = end + strspn(end, " ");
    }
    return 0;
}

static qn_status check_spills(const qn_device *device, const qni_kernel_ref *ref,
                              const qni_kernel_usage *usage) {
    const int32_t of_image = spills_allowed(ref->image, device->target);
    const int32_t most = of_image > ref->max_sgpr_spills ? of_image : ref->max_sgpr_spills;
    if (usage->sgpr_spills > most)
        return QN_FAIL(QN_E_UNSUPPORTED, "%s: spills %d SGPRs on %s; its contract allows %d",
                       ref->entry, usage->sgpr_spills, device->target->name, most);
    return QN_OK;
}

/** Checks what the kernel's author promised of its code, and what the device can give. */
static qn_status check_usage(const qn_device *device, const qni_kernel_ref *ref,
                             const qni_kernel_usage *usage) {
    // Each driver makes its own code of PTX, and a user cannot change how much scratch that takes.
    if (usage->scratch_bytes > ref->max_scratch_bytes && !qni_target_is_ptx(device->target))
        return QN_FAIL(QN_E_UNSUPPORTED,
                       "%s: uses %d bytes of scratch a lane; its contract allows %d", ref->entry,
                       usage->scratch_bytes, ref->max_scratch_bytes);
    if (usage->lds_bytes > device->target->lds_bytes)
        return QN_FAIL(QN_E_UNSUPPORTED, "%s: uses %d bytes of LDS; %s has %d", ref->entry,
                       usage->lds_bytes, device->target->name, device->target->lds_bytes);
    return check_spills(device, ref, usage);
}

/** Finds the kernel in its image. AMD's image says what the kernel uses; for PTX the driver says it
 *  later. */
static qn_status find_kernel(const qn_device *device, const qni_kernel_ref *ref, const void *data,
                             size_t bytes, qni_kernel_usage *usage) {
    qni_object_kernel found;
    const bool is_ptx = qni_target_is_ptx(device->target);
    qn_status st =
        (is_ptx ? qni_ptx_kernel_find : qni_object_kernel_find)(&found, data, bytes, ref->entry);
    if (st == QN_OK && !is_ptx)
        st = check_usage(device, ref, &found.usage);
    if (st == QN_OK && ref->uses_lds_dma)
        st = check_waits(device, ref, &found);
    *usage = found.usage;
    return st;
}

typedef struct request {
    const qn_device *device;
    const qni_kernel_ref *ref;
} request;

static qn_status judge_image(void *context, const void *data, size_t bytes) {
    const request *r = context;
    qni_kernel_usage usage;
    return find_kernel(r->device, r->ref, data, bytes, &usage);
}

// ---- images

/** Gets the image's bytes for the device: built in for the device's target or for its family, else
 *  from the JIT. */
static qn_status get_bytes(const qn_device *device, const qni_kernel_ref *ref,
                           loaded_image *image) {
    const qni_target *const own = device->target, *const family = qni_target_generic(own);
    const qni_image *embedded = nullptr;
    if (!*image->defines && own)
        embedded = qni_image_find(image->id, own->name);
    if (!*image->defines && family && !embedded)
        embedded = qni_image_find(image->id, family->name);
    if (embedded)
        return qni_image_unpack(embedded, &image->data, &image->bytes);
    return qni_jit_get(image->id, image->defines, own, judge_image, &(request){device, ref},
                       &image->data, &image->bytes);
}

static void free_image(loaded_image *image) {
    if (!image)
        return;
    free(image->id);
    free(image->defines);
    free(image->data);
    free(image);
}

/** Returns the image that holds the kernel, and loads it if need be. The lock is held. */
static qn_status get_image(qn_device *device, const qni_kernel_ref *ref, loaded_image **out) {
    const char *defines = defines_of(ref);
    for (loaded_image *image = device->kernels->images; image; image = image->next)
        if (strcmp(image->id, ref->image) == 0 && strcmp(image->defines, defines) == 0) {
            *out = image;
            return QN_OK;
        }
    loaded_image *image = calloc(1, sizeof *image);
    qn_status st;
    if (!image || !(image->id = strdup(ref->image)) || !(image->defines = strdup(defines))) {
        st = QN_FAIL(QN_E_MEMORY, "image: out of memory");
        goto out;
    }
    QN_TRY_OUT(get_bytes(device, ref, image));
    QN_TRY_OUT(device->backend->image_load(device, &image->module, image->data, image->bytes));
    image->next = device->kernels->images;
    device->kernels->images = *out = image;
    image = nullptr;
out:
    free_image(image);
    return st;
}

/** Gets the native kernel from the loaded image, once the kernel is known to keep its contract. */
static qn_status get_native(qn_device *device, const qni_kernel_ref *ref, void *module,
                            loaded_kernel *kernel) {
    const qni_backend *backend = device->backend;
    qn_status st = backend->kernel_get(device, &kernel->native, module, ref->entry);
    if (st != QN_OK || !backend->kernel_usage)
        return st;
    st = backend->kernel_usage(device, kernel->native, &kernel->usage);
    return st == QN_OK ? check_usage(device, ref, &kernel->usage) : st;
}

/** Loads, checks and files the kernel. The lock is held. */
static qn_status load_kernel(qn_device *device, const qni_kernel_ref *ref, loaded_kernel **out) {
    loaded_image *image = nullptr;
    loaded_kernel *kernel = make_kernel(ref);
    if (!kernel)
        return QN_FAIL(QN_E_MEMORY, "image: out of memory");
    qn_status st;
    QN_TRY_OUT(get_image(device, ref, &image));
    QN_TRY_OUT(find_kernel(device, ref, image->data, image->bytes, &kernel->usage));
    QN_TRY_OUT(get_native(device, ref, image->module, kernel));
    kernel->next = device->kernels->kernels;
    device->kernels->kernels = *out = kernel;
    add_slot(device->kernels, kernel);
    kernel = nullptr;
out:
    free_kernel(kernel);
    return st;
}

static qn_status get_kernel(qn_device *device, const qni_kernel_ref *ref, loaded_kernel **out) {
    if (!device->kernels)
        return QN_FAIL(QN_E_UNSUPPORTED, "%s: a GPU kernel; %s is none", ref->entry,
                       device->info.spec);
    if ((*out = find_fast(device->kernels, ref)))
        return QN_OK;
    qn_status st = QN_OK;
    pthread_mutex_lock(&device->kernels->lock);
    for (*out = device->kernels->kernels; *out && !is_same_ref(&(*out)->ref, ref);)
        *out = (*out)->next;
    if (!*out)
        st = load_kernel(device, ref, out);
    pthread_mutex_unlock(&device->kernels->lock);
    return st;
}

qn_status qni_launch(qn_stream *stream, const qni_kernel_ref *ref, const uint32_t grid[3],
                     uint32_t threads, const void *args, size_t args_bytes) {
    qn_device *device = stream->device;
    loaded_kernel *kernel = nullptr;
    if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0)
        return QN_OK; // HIP calls an empty grid an error, but an empty problem is no error
    qn_status st = get_kernel(device, ref, &kernel);
    if (st != QN_OK)
        return st;
    if (threads > (uint32_t)kernel->usage.max_threads)
        return QN_FAIL(QN_E_UNSUPPORTED,
                       "%s: launched with %u threads; it was built for at most %d", ref->entry,
                       threads, kernel->usage.max_threads);
    if (args_bytes > (size_t)kernel->usage.kernarg_bytes)
        return QN_FAIL(QN_E_UNSUPPORTED, "%s: launched with %zu bytes of arguments; it takes %d",
                       ref->entry, args_bytes, kernel->usage.kernarg_bytes);
    qni_log(QNI_LOG_LAUNCH, "%s of %s%s%s on %s: %ux%ux%u groups of %u", ref->entry, ref->image,
            ref->defines ? " " : "", ref->defines ? ref->defines : "", device->info.spec, grid[0],
            grid[1], grid[2], threads);
    atomic_store_explicit(&kernel->was_launched, true, memory_order_relaxed);
    st = device->backend->launch(stream, kernel->native, &kernel->usage, grid, threads, args,
                                 args_bytes);
    return st == QN_OK && qni_env_get()->serialize_kernel ? device->backend->stream_sync(stream)
                                                          : st;
}

qn_status qni_kernel_get_usage(qn_device *device, const qni_kernel_ref *ref,
                               qni_kernel_usage *out) {
    loaded_kernel *kernel = nullptr;
    const qn_status st = get_kernel(device, ref, &kernel);
    if (st == QN_OK)
        *out = kernel->usage;
    return st;
}

/** Returns whether `a` says less than `b`: they are letters of quernsim_evidence, the strongest
 *  first. */
static bool is_weaker(char a, char b) {
    static const char order[] = "mil?";
    return a && (!b || strchr(order, a) > strchr(order, b));
}

char qni_kernels_evidence(qn_device *device, char *names, size_t bytes) {
    char weakest = 0, found[512];
    if (!device->kernels || !device->backend->kernel_evidence)
        return 0;
    pthread_mutex_lock(&device->kernels->lock);
    for (loaded_kernel *kernel = device->kernels->kernels; kernel; kernel = kernel->next) {
        if (!atomic_exchange(&kernel->was_launched, false) || !names)
            continue;
        const char known =
            device->backend->kernel_evidence(device, kernel->native, found, sizeof found);
        if (is_weaker(known, weakest)) {
            weakest = known;
            snprintf(names, bytes, "%s", found);
        }
    }
    pthread_mutex_unlock(&device->kernels->lock);
    return weakest;
}

qn_status qni_kernels_create(qn_device *device) {
    struct qni_kernel_cache *cache = calloc(1, sizeof *cache);
    if (!cache)
        return QN_FAIL(QN_E_MEMORY, "device: out of memory");
    pthread_mutex_init(&cache->lock, nullptr);
    device->kernels = cache;
    return QN_OK;
}

void qni_kernels_destroy(qn_device *device) {
    struct qni_kernel_cache *cache = device->kernels;
    if (!cache)
        return;
    for (loaded_kernel *kernel = cache->kernels, *next; kernel; kernel = next) {
        next = kernel->next;
        free_kernel(kernel);
    }
    for (loaded_image *image = cache->images, *next; image; image = next) {
        next = image->next;
        device->backend->image_unload(device, image->module);
        free_image(image);
    }
    pthread_mutex_destroy(&cache->lock);
    free(cache);
    device->kernels = nullptr;
}
