// SPDX-License-Identifier: Apache-2.0
// The JIT: writes the embedded sources to a private folder, runs clang there, keeps the image in
// the cache.
#include "jit.h"

#include "cache.h"
#include "compiler.h"
#include "image.h"
#include "workplace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/** How long to wait for another process that builds this image, before this process builds it as
 *  well. */
constexpr int lock_wait_ms = 120000;

/** One thing to build. */
typedef struct job {
    const qni_image_recipe *recipe;
    const char *defines;
    const qni_target *target;
    const qni_compiler *compiler;
    qni_jit_judge judge; // null: any image is accepted
    void *context;
} job;

static const char *const *family_flags(const qni_target *target) {
    return qni_target_is_ptx(target) ? qni_ptx_flags : qni_amd_flags;
}

// ---- the key

static void hash_text(XXH3_state_t *state, const char *text) {
    XXH3_128bits_update(state, text, strlen(text) + 1); // with its zero: "ab" "c" is not "a" "bc"
}

static qni_cache_key key_of(const job *j) {
    char version[16];
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    snprintf(version, sizeof version, "%d", j->target->code_object_version);
    hash_text(&state, j->recipe->source);
    hash_text(&state, j->recipe->defines);
    hash_text(&state, j->defines);
    hash_text(&state, j->target->name);
    hash_text(&state, version);
    hash_text(&state, j->compiler->identity);
    for (const char *const *flag = qni_device_flags; *flag; flag++)
        hash_text(&state, *flag);
    for (const char *const *flag = family_flags(j->target); *flag; flag++)
        hash_text(&state, *flag);
    // The key has all sources, not only those that this one includes, as only clang knows which
    // these are.
    for (const qni_image_source *source = qni_image_sources; source->path; source++) {
        hash_text(&state, source->path);
        hash_text(&state, source->text);
    }
    XXH128_hash_t hash = XXH3_128bits_digest(&state);
    return (qni_cache_key){hash.low64, hash.high64};
}

// ---- the sources

/** Writes a text file under `folder`, making the folders of its path. */
static bool write_source(int folder, const qni_image_source *source) {
    char part[256];
    for (const char *slash = strchr(source->path, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(part, sizeof part, "%.*s", (int)(slash - source->path), source->path);
        if (mkdirat(folder, part, 0700) != 0 && errno != EEXIST)
            return false;
    }
    const int fd = openat(folder, source->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    FILE *file = fd < 0 ? nullptr : fdopen(fd, "w");
    if (!file)
        return false;
    const bool is_written = fputs(source->text, file) >= 0;
    return fclose(file) == 0 && is_written;
}

static qn_status write_sources(const char *path) {
    const int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool is_written = folder >= 0;
    for (const qni_image_source *s = qni_image_sources; is_written && s->path; s++)
        is_written = write_source(folder, s);
    const int error = errno;
    if (folder >= 0)
        close(folder);
    if (!is_written)
        return QN_FAIL(QN_E_IO, "jit: cannot write the sources to %s: %s", path, strerror(error));
    return QN_OK;
}

// ---- running clang

enum { MAX_ARGUMENTS = 96, FLAGS_ROOM = 2048 };

typedef struct command {
    char *argv[MAX_ARGUMENTS + 1];
    int count;
    char words[FLAGS_ROOM]; // the -D flags, cut at blanks; argv points into them
    size_t used;
} command;

static void add(command *c, const char *word) {
    if (c->count < MAX_ARGUMENTS)
        c->argv[c->count++] = (char *)word;
}

/** Reduces a recipe's define to its value for a target: "-DN=1,gfx9=2" to "-DN=2" if the target's
 *  name begins with gfx9, else to "-DN=1". */
static void choose_value(char *define, const char *target) {
    char *option = strchr(define, ',');
    if (option)
        *option++ = 0;
    for (char *next; option; option = next) {
        next = strchr(option, ',');
        if (next)
            *next++ = 0;
        const char *value = strchr(option, '=') + 1; // the build checked that there is one
        if (strncmp(target, option, (size_t)(value - 1 - option)) == 0) {
            memmove(strchr(define, '=') + 1, value, strlen(value) + 1);
            return;
        }
    }
}

/** Adds the words of a text, which blanks separate. The values of a recipe's defines are chosen for
 *  `target`; null: the words are taken as they are. Returns false if there is no room. */
static bool add_words(command *c, const char *text, const char *target) {
    for (const char *at = text + strspn(text, " "); *at; at += strspn(at, " ")) {
        const size_t length = strcspn(at, " ");
        if (c->used + length + 1 > sizeof c->words || c->count >= MAX_ARGUMENTS - 8)
            return false;
        char *word = c->words + c->used;
        memcpy(word, at, length);
        word[length] = 0;
        c->used += length + 1;
        if (target)
            choose_value(word, target);
        add(c, word);
        at += length;
    }
    return true;
}

/** Reads the image that clang wrote, and puts a zero behind it, which PTX needs and for PTX *bytes
 *  counts. */
static qn_status read_image(const char *path, bool is_ptx, void **data, size_t *bytes) {
    struct stat s;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *image = fd >= 0 && fstat(fd, &s) == 0 ? calloc(1, (size_t)s.st_size + 1) : nullptr;
    size_t got = 0;
    for (ssize_t n = 1; image && n > 0 && got < (size_t)s.st_size; got += n > 0 ? (size_t)n : 0)
        n = read(fd, image + got, (size_t)s.st_size - got);
    if (fd >= 0)
        close(fd);
    if (!image || got == 0 || got != (size_t)s.st_size) {
        free(image);
        return QN_FAIL(QN_E_IO, "jit: cannot read %s, which clang was to write", path);
    }
    *data = image;
    *bytes = got + is_ptx;
    return QN_OK;
}

/** Adds the words that name the target. */
static void add_target(command *c, const qni_target *target, char *cpu, char *version,
                       size_t room) {
    for (const char *const *flag = family_flags(target); *flag; flag++)
        add(c, *flag);
    snprintf(cpu, room, "-m%s=%s", qni_target_is_ptx(target) ? "arch" : "cpu", target->name);
    add(c, cpu);
    snprintf(version, room, "-mcode-object-version=%d", target->code_object_version);
    if (!qni_target_is_ptx(target))
        add(c, version);
}

static qn_status compile_in(const job *j, const char *path, void **data, size_t *bytes) {
    char cpu[64], version[sizeof cpu], include[512], source[768], object[512], output[3000];
    command c = {.argv = {(char *)j->compiler->path}, .count = 1};
    int exit_code = 0;
    for (const char *const *flag = qni_device_flags; *flag; flag++)
        add(&c, *flag);
    if (!add_words(&c, j->recipe->defines, j->target->name) || !add_words(&c, j->defines, nullptr))
        return QN_FAIL(QN_E_INVALID, "jit: %s: too many -D flags", j->recipe->id);
    add_target(&c, j->target, cpu, version, sizeof cpu);
    snprintf(include, sizeof include, "-I%s/gpu", path);
    snprintf(source, sizeof source, "%s/%s", path, j->recipe->source);
    snprintf(object, sizeof object, "%s/image.co", path);
    const char *const last[] = {include, "-o", object, source};
    for (size_t i = 0; i < sizeof last / sizeof *last; i++)
        add(&c, last[i]);
    qn_status st =
        qni_spawn(c.argv, path, qni_env_get()->jit_timeout_s, output, sizeof output, &exit_code);
    if (st == QN_OK && exit_code != 0)
        st = QN_FAIL(QN_E_DEVICE, "jit: %s of %s for %s: %s failed (%d):\n%s", j->recipe->id,
                     j->recipe->source, j->target->name, j->compiler->path, exit_code, output);
    return st == QN_OK ? read_image(object, qni_target_is_ptx(j->target), data, bytes) : st;
}

/** Returns what stands between an image's name and its defines in a message. */
static const char *blank_before(const char *defines) {
    return *defines ? " " : "";
}

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static qn_status compile(const job *j, void **data, size_t *bytes) {
    qni_workplace place;
    const double begin = seconds_now();
    qn_status st = qni_workplace_make(&place);
    if (st != QN_OK)
        return st;
    st = write_sources(place.path);
    if (st == QN_OK)
        st = compile_in(j, place.path, data, bytes);
    qni_workplace_remove(&place);
    if (st == QN_OK)
        qni_log(QNI_LOG_JIT, "%s%s%s for %s: compiled in %.1f s by %s", j->recipe->id,
                blank_before(j->defines), j->defines, j->target->name, seconds_now() - begin,
                j->compiler->path);
    return st;
}

// ---- cache or clang

static qn_status judged(const job *j, const void *data, size_t bytes) {
    return j->judge ? j->judge(j->context, data, bytes) : QN_OK;
}

/** Loads from the cache. Returns false unless the entry is sound and its image is accepted. */
static bool load(const job *j, qni_cache *cache, const char *name, qni_cache_key key, void **data,
                 size_t *bytes) {
    char problem[128];
    void *found = nullptr;
    if (qni_cache_load(cache, name, key, &found, bytes, problem, sizeof problem)) {
        if (judged(j, found, *bytes) == QN_OK) {
            *data = found;
            qni_log(QNI_LOG_JIT, "%s: from the cache", name);
            return true;
        }
        free(found);
        snprintf(problem, sizeof problem, "%s", qn_last_error());
    }
    if (cache->folder >= 0 && strcmp(problem, "absent") != 0)
        qni_log(QNI_LOG_JIT, "%s: not loaded from the cache: %s", name, problem);
    return false;
}

/** Compiles the image. An image that is not accepted is an error now, and is not kept for the next
 *  process. */
static qn_status compile_and_judge(const job *j, void **data, size_t *bytes) {
    qn_status st = compile(j, data, bytes);
    if (st == QN_OK && (st = judged(j, *data, *bytes)) != QN_OK) {
        free(*data);
        *data = nullptr;
    }
    return st;
}

static void keep(qni_cache *cache, const char *name, qni_cache_key key, const void *data,
                 size_t bytes) {
    char problem[128];
    if (cache->lock < 0)
        qni_log(QNI_LOG_JIT, "%s: not kept: the cache cannot be locked", name);
    else if (!qni_cache_store(cache, name, key, data, bytes, problem, sizeof problem))
        qni_log(QNI_LOG_JIT, "%s: not kept: %s", name, problem);
}

static qn_status build(const job *j, qni_cache *cache, const char *name, qni_cache_key key,
                       void **data, size_t *bytes) {
    if (qni_cache_lock(cache, key, lock_wait_ms) &&
        load(j, cache, name, key, data, bytes)) // another process built the image while this one
                                                // waited
        return QN_OK;
    const qn_status st = compile_and_judge(j, data, bytes);
    if (st == QN_OK && cache->folder >= 0)
        keep(cache, name, key, *data, *bytes);
    return st;
}

static qn_status get(const job *j, void **data, size_t *bytes) {
    char name[256];
    qni_cache cache;
    qni_cache_key key = key_of(j);
    qn_status st = QN_OK;
    qni_cache_name(name, sizeof name, j->recipe->id, j->target->name, key);
    qni_cache_open(&cache);
    if (cache.folder < 0)
        qni_log(QNI_LOG_JIT, "no cache: %s", cache.problem);
    if (!load(j, &cache, name, key, data, bytes))
        st = build(j, &cache, name, key, data, bytes);
    qni_cache_close(&cache);
    return st;
}

/** Writes " (built in for: gfx942 gfx950)". */
static void put_built_in(const char *id, char *text, size_t room) {
    *text = 0;
    for (const qni_image *image = qni_images; image->id; image++)
        if (strcmp(image->id, id) == 0)
            snprintf(text + strlen(text), room - strlen(text), "%s%s",
                     *text ? " " : " (built in for: ", image->target);
    snprintf(text + strlen(text), room - strlen(text), *text ? ")" : " (built in for no target)");
}

qn_status qni_jit_get(const char *id, const char *defines, const qni_target *target,
                      qni_jit_judge judge, void *context, void **data, size_t *bytes) {
    char built_in[256];
    job j = {.recipe = qni_image_recipes,
             .defines = defines ? defines : "",
             .target = target,
             .judge = judge,
             .context = context};
    while (j.recipe->id && strcmp(j.recipe->id, id) != 0)
        j.recipe++;
    if (!j.recipe->id)
        return QN_FAIL(QN_E_NOT_FOUND, "image: no recipe is called %s", id);
    put_built_in(id, built_in, sizeof built_in);
    if (qni_env_get()->no_jit)
        return QN_FAIL(QN_E_UNSUPPORTED,
                       "image: no %s%s%s for %s%s, and QUERN_NO_JIT forbids to compile it", id,
                       blank_before(j.defines), j.defines, target->name, built_in);
    const qn_status st = qni_compiler_find(&j.compiler);
    if (st != QN_OK)
        return QN_FAIL(st, "image: no %s%s%s for %s%s, and %s", id, blank_before(j.defines),
                       j.defines, target->name, built_in, qn_last_error());
    return get(&j, data, bytes);
}
