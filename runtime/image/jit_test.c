// SPDX-License-Identifier: Apache-2.0
// The JIT: cold, warm, many processes at once, killed in the middle, without clang, without a
// usable cache.
#include "../testing.h"
#include "cache.h"
#include "compiler.h"
#include "image.h"
#include "jit.h"
#include "object.h"
#include "workplace.h"

#include <quern/cache.h>

#include <dirent.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <time.h>

static const qni_target *gfx942(void) {
    return qni_target_find("gfx942", 6);
}

/** The image that the tests build: the smallest that there is. */
static const char *const image = "gemm_pack";
static const char *const entry = "qk_gemm_pack";

/** A cache and a folder for temporary files, both empty, and the environment that names them. */
typedef struct place {
    char top[64], cache[128], tmp[128];
    char cache_variable[160], tmp_variable[160];
    const char *env[8];
} place;

static place *make_place(const char *more) {
    static place p;
    p = (place){0};
    make_folder(p.top, sizeof p.top);
    snprintf(p.cache, sizeof p.cache, "%s/cache", p.top);
    snprintf(p.tmp, sizeof p.tmp, "%s/tmp", p.top);
    assert_int_equal(mkdir(p.tmp, 0700), 0);
    snprintf(p.cache_variable, sizeof p.cache_variable, "QUERN_CACHE_DIR=%s", p.cache);
    snprintf(p.tmp_variable, sizeof p.tmp_variable, "TMPDIR=%s", p.tmp);
    const char *env[] = {p.cache_variable, p.tmp_variable, "QUERN_LOG=jit", more};
    memcpy(p.env, env, sizeof env);
    return &p;
}

static int count_files(const char *path) {
    int count = 0;
    DIR *folder = opendir(path);
    for (struct dirent *file; folder && (file = readdir(folder));)
        count += file->d_name[0] != '.';
    if (folder)
        closedir(folder);
    return count;
}

/** Gets the image and checks that it is one. `defines` may be null. */
static void get_image(void *defines) {
    void *data = nullptr;
    size_t bytes = 0;
    qni_object_kernel kernel;
    CHILD_CHECK(qni_jit_get(image, defines, gfx942(), nullptr, nullptr, &data, &bytes) == QN_OK);
    CHILD_CHECK(qni_object_kernel_find(&kernel, data, bytes, entry) == QN_OK);
    CHILD_CHECK(kernel.usage.max_threads > 0 && kernel.code_bytes > 0);
    free(data);
}

// ---- cold, warm, damaged

static void test_cold_and_warm(void **) {
    place *p = make_place(nullptr);
    const char *text = child_run(get_image, nullptr, p->env);
    assert_int_equal(count_text(text, "compiled in"), 1);
    assert_int_equal(count_files(p->cache), 1);
    assert_int_equal(count_files(p->tmp), 0); // nothing is left of the sources
    text = child_run(get_image, nullptr, p->env);
    assert_int_equal(count_text(text, "from the cache"), 1);
    assert_int_equal(count_text(text, "compiled in"), 0);
    text = child_run(get_image, "-DQK_UNUSED=1", p->env); // other flags, another entry
    assert_int_equal(count_text(text, "compiled in"), 1);
    assert_int_equal(count_files(p->cache), 2);
    remove_folder(p->top);
}

static void truncate_one(void *folder, const qn_cache_entry *file) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", (const char *)folder, file->name);
    CHILD_CHECK(truncate(path, file->bytes / 2) == 0);
}

static void flip_one(void *folder, const qn_cache_entry *file) {
    char path[512], byte;
    snprintf(path, sizeof path, "%s/%s", (const char *)folder, file->name);
    const int fd = open(path, O_RDWR);
    CHILD_CHECK(fd >= 0 && pread(fd, &byte, 1, file->bytes / 2) == 1);
    byte ^= 4;
    CHILD_CHECK(pwrite(fd, &byte, 1, file->bytes / 2) == 1 && close(fd) == 0);
}

/** Gives the file to another user. Without root it lets others write to the file, which has the
 *  effect of that. */
static void estrange_one(void *folder, const qn_cache_entry *file) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", (const char *)folder, file->name);
    CHILD_CHECK(geteuid() == 0 ? chown(path, 1, 1) == 0 : chmod(path, 0622) == 0);
}

typedef struct mischief {
    qn_cache_fn each;
    char *folder;
} mischief;

static void do_mischief(void *context) {
    const mischief *m = context;
    CHILD_CHECK(qn_cache_list(m->each, m->folder) == QN_OK);
}

static void test_damaged_is_rebuilt(void **) {
    static const struct {
        qn_cache_fn each;
        const char *want;
    } cases[] = {{truncate_one, "its size is not what its header says"},
                 {flip_one, "its checksum is wrong"},
                 {estrange_one, "not loaded from the cache: "}};
    place *p = make_place(nullptr);
    child_run(get_image, nullptr, p->env);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        child_run(do_mischief, &(mischief){cases[i].each, p->cache}, p->env);
        const char *text = child_run(get_image, nullptr, p->env);
        assert_non_null(strstr(text, cases[i].want));
        assert_int_equal(count_text(text, "compiled in"), 1);
        text = child_run(get_image, nullptr, p->env);
        assert_int_equal(count_text(text, "from the cache"), 1);
    }
    remove_folder(p->top);
}

// ---- many at once, killed

static void test_many_cold_processes(void **) {
    enum { PROCESSES = 6 };
    place *p = make_place(nullptr);
    child children[PROCESSES];
    int compiled = 0, loaded = 0;
    for (int i = 0; i < PROCESSES; i++)
        children[i] = child_start(get_image, nullptr, p->env);
    for (int i = 0; i < PROCESSES; i++) {
        const char *text;
        const int code = child_wait(&children[i], &text);
        if (code != 0)
            fail_msg("process %d ended with %d:\n%s", i, code, text);
        compiled += count_text(text, "compiled in");
        loaded += count_text(text, "from the cache");
    }
    assert_int_equal(compiled, 1);
    assert_int_equal(loaded, PROCESSES - 1);
    assert_int_equal(count_files(p->cache), 1);
    remove_folder(p->top);
}

static void test_killed_and_recovered(void **) {
    place *p = make_place(nullptr);
    for (int ms = 1; ms <= 256; ms *= 4) {
        child c = child_start(get_image, nullptr, p->env);
        nanosleep(&(struct timespec){.tv_nsec = ms * 1000000L}, nullptr);
        kill(c.pid, SIGKILL);
        child_wait(&c, nullptr);
    }
    child_run(get_image, nullptr, p->env);
    const char *text = child_run(get_image, nullptr, p->env);
    assert_int_equal(count_text(text, "from the cache"), 1);
    assert_int_equal(count_files(p->cache), 1);
    // A clang whose parent was killed may still write to the folder that is being removed; then the
    // next run removes it.
    for (int i = 0; i < 20 && count_files(p->tmp) > 0; i++) {
        char defines[32];
        snprintf(defines, sizeof defines, "-DQK_UNUSED=%d", i);
        child_run(get_image, defines, p->env);
    }
    assert_int_equal(count_files(p->tmp), 0);
    remove_folder(p->top);
}

/** The folder of a living process does not count as left behind. */
static void test_living_neighbour(void **) {
    place *p = make_place("QUERN_CLANG=/nonexistent/clang");
    qni_workplace place;
    snprintf(place.path, sizeof place.path, "%s/quern-jit-AbCdEf", p->tmp);
    assert_int_equal(mkdir(place.path, 0700), 0);
    place.lock = open(place.path, O_RDONLY | O_DIRECTORY);
    assert_int_equal(flock(place.lock, LOCK_EX), 0);
    p->env[3] = nullptr;
    child_run(get_image, nullptr, p->env);
    assert_int_equal(count_files(p->tmp), 1);
    assert_int_equal(flock(place.lock, LOCK_UN), 0);
    const char *text = child_run(get_image, "-DQK_UNUSED=1", p->env);
    assert_non_null(strstr(text, "AbCdEf, which a killed process had left"));
    assert_int_equal(count_files(p->tmp), 0);
    close(place.lock);
    remove_folder(p->top);
}

// ---- no usable cache: the image is still built and used

static void test_distrusted_folder(void **) {
    place *p = make_place(nullptr);
    assert_int_equal(mkdir(p->cache, 0700), 0);
    assert_int_equal(chmod(p->cache, 0777), 0);
    const char *text = child_run(get_image, nullptr, p->env);
    assert_int_equal(count_text(text, "no cache: "), 1);
    assert_int_equal(count_text(text, "compiled in"), 1);
    assert_int_equal(count_files(p->cache), 0);
    remove_folder(p->top);
}

static void run_mounted(const char *options, bool read_only, const char *want) {
    place *p = make_place(nullptr);
    assert_int_equal(mkdir(p->cache, 0700), 0);
    if (mount("quern-test", p->cache, "tmpfs", 0, options) != 0) {
        remove_folder(p->top);
        print_message("a small file system needs root: %s\n", strerror(errno));
        skip();
    }
    if (read_only)
        assert_int_equal(mount(nullptr, p->cache, nullptr, MS_REMOUNT | MS_RDONLY, nullptr), 0);
    const char *text = child_run(get_image, nullptr, p->env);
    const bool is_told = strstr(text, want) && count_text(text, "compiled in") == 1;
    const int left = count_files(p->cache);
    assert_int_equal(umount(p->cache), 0);
    remove_folder(p->top);
    if (!is_told)
        fail_msg("\"%s\" is not in: %s", want, text);
    assert_int_equal(left, 0);
}

static void test_full_disk(void **) {
    run_mounted("size=4k,mode=0700", false, "not kept: No space left on device");
}

static void test_read_only_folder(void **) {
    if (geteuid() != 0) { // for others than root a mode is enough
        place *p = make_place(nullptr);
        assert_int_equal(mkdir(p->cache, 0500), 0);
        const char *text = child_run(get_image, nullptr, p->env);
        assert_non_null(strstr(text, "not kept: the cache cannot be locked"));
        assert_int_equal(count_text(text, "compiled in"), 1);
        remove_folder(p->top);
        return;
    }
    run_mounted("size=4k,mode=0700", true, "not kept: the cache cannot be locked");
}

static void test_no_tmp(void **) {
    place *p = make_place("TMPDIR=/nonexistent"); // /dev/shm takes its place
    child_run(get_image, nullptr, p->env);
    remove_folder(p->top);
}

// ---- compilers

static void expect_failure(void *context) {
    const char *const *want = context;
    void *data = nullptr;
    size_t bytes;
    CHILD_CHECK(qni_jit_get(image, nullptr, gfx942(), nullptr, nullptr, &data, &bytes) != QN_OK &&
                !data);
    for (; *want; want++)
        if (!strstr(qn_last_error(), *want)) {
            fprintf(stderr, "\"%s\" is not in: %s\n", *want, qn_last_error());
            _exit(1);
        }
}

static void write_script(const char *path, const char *text) {
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(path, 0700), 0);
}

static void test_no_clang(void **) {
    const char *none[] = {"no gemm_pack",         "for gfx942",
                          "no clang 22 or later", "QUERN_CLANG=/nonexistent/clang is not a program",
                          "install clang-22",     nullptr};
    place *p = make_place("QUERN_CLANG=/nonexistent/clang");
    child_run(expect_failure, none, p->env);
    assert_int_equal(count_files(p->tmp), 0);
    remove_folder(p->top);
}

static void test_other_compilers(void **) {
    char script[128], variable[160];
    place *p = make_place(variable);
    snprintf(script, sizeof script, "%s/clang", p->top);
    snprintf(variable, sizeof variable, "QUERN_CLANG=%s", script);
    write_script(script, "#!/bin/sh\necho 'Debian clang version 14.0.6'\n");
    child_run(expect_failure, (const char *[]){"is version 14", nullptr}, p->env);
    write_script(script, "#!/bin/sh\necho 'gcc (Debian) 12.2'\n");
    child_run(expect_failure, (const char *[]){"did not say that it is clang", nullptr}, p->env);
    write_script(script, "#!/bin/sh\n"
                         "case $1 in --version) echo 'clang version 22.9.9';; \n"
                         "*) echo 'error: a broken compiler' >&2; exit 3;; esac\n");
    child_run(expect_failure, (const char *[]){"failed (3)", "error: a broken compiler", nullptr},
              p->env);
    write_script(script, "#!/bin/sh\n"
                         "case $1 in --version) echo 'clang version 22.9.9';; \n"
                         "*) kill -9 $$;; esac\n");
    child_run(expect_failure, (const char *[]){"failed (137)", nullptr}, p->env);
    assert_int_equal(count_files(p->cache), 0);
    assert_int_equal(count_files(p->tmp), 0);
    remove_folder(p->top);
}

/** Without a clang in PATH, ROCm's own is taken where it is new enough. */
static void test_clang_of_rocm(void **) {
    char path[160], variable[160];
    for (int i = 0; i < 2; i++) {
        place *p = make_place("PATH=/nonexistent");
        snprintf(variable, sizeof variable, "%s=%s", i ? "HIP_PATH" : "ROCM_PATH", p->top);
        p->env[4] = variable;
        snprintf(path, sizeof path, "%s/llvm", p->top);
        assert_int_equal(mkdir(path, 0700), 0);
        snprintf(path, sizeof path, "%s/llvm/bin", p->top);
        assert_int_equal(mkdir(path, 0700), 0);
        snprintf(path, sizeof path, "%s/llvm/bin/clang", p->top);
        write_script(path, "#!/bin/sh\necho 'AMD clang version 20.0.0git'\n");
        child_run(expect_failure,
                  (const char *[]){"llvm/bin/clang is version 20", "ROCM_PATH, HIP_PATH", nullptr},
                  p->env);
        write_script(path, "#!/bin/sh\n"
                           "case $1 in --version) echo 'AMD clang version 22.0.0git';; \n"
                           "*) echo 'error: of ROCm' >&2; exit 3;; esac\n");
        child_run(expect_failure, (const char *[]){"error: of ROCm", nullptr}, p->env);
        remove_folder(p->top);
    }
}

/** Returns the state of a process as ps shows it; 'X' if there is no such process. */
static char state_of(int pid) {
    char path[64], state = 'X';
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "re");
    if (f) {
        assert_int_equal(fscanf(f, "%*d (%*[^)]) %c", &state), 1);
        fclose(f);
    }
    return state;
}

/** Returns whether the process that the script started still runs; its number is in a file. A
 *  process that ended may not have been waited for yet. */
static bool still_runs(const char *folder) {
    char path[128];
    int pid = 0;
    snprintf(path, sizeof path, "%s/pid", folder);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%d", &pid), 1);
    fclose(f);
    for (int i = 0; i < 100 && !strchr("XZ", state_of(pid)); i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, nullptr);
    return !strchr("XZ", state_of(pid));
}

/** Compilers that hang are killed, whether they keep their output open or not, and so is one that
 *  does not answer --version. */
static void test_hanging_compiler(void **) {
    static const char *const scripts[] = {
        "case $1 in --version) echo 'clang version 22.9.9';; *) sleep 100 & echo $! >%s/pid; "
        "wait;; esac\n",
        "case $1 in --version) echo 'clang version 22.9.9';;\n"
        "*) exec >/dev/null 2>&1; sleep 100 & echo $! >%s/pid; wait;; esac\n",
        "sleep 100 & echo $! >%s/pid; wait\n"};
    char script[128], variable[160], text[512];
    place *p = make_place(variable);
    p->env[4] = "QUERN_JIT_TIMEOUT=1";
    snprintf(script, sizeof script, "%s/clang", p->top);
    snprintf(variable, sizeof variable, "QUERN_CLANG=%s", script);
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        const int n = snprintf(text, sizeof text, "#!/bin/sh\n");
        snprintf(text + n, sizeof text - (size_t)n, scripts[i], p->top);
        write_script(script, text);
        child_run(expect_failure, (const char *[]){script, "did not end within 1 s", nullptr},
                  p->env);
        assert_false(still_runs(p->top));
        assert_int_equal(count_files(p->tmp), 0);
    }
    remove_folder(p->top);
}

// ---- references made at run time

/** Uses defines that are written where other defines were before. */
static qn_status use_configuration(qn_device *device, char *defines, const char *text) {
    qni_kernel_usage usage = {0};
    const qni_kernel_ref ref = {.image = image, .entry = entry, .defines = strcpy(defines, text)};
    const qn_status st = qni_kernel_get_usage(device, &ref, &usage);
    CHILD_CHECK(st != QN_OK || usage.max_threads == 256);
    return st;
}

static void use_configurations(void *) {
    char here[32], there[32];
    qn_device *device;
    CHILD_CHECK(qn_device_open(&device, "sim:gfx942") == QN_OK);
    for (int i = 0; i < 2; i++) {
        CHILD_CHECK(use_configuration(device, here, "-DQK_UNUSED=2") == QN_OK);
        CHILD_CHECK(use_configuration(device, there, "-DQK_UNUSED=2") == QN_OK);
    }
    CHILD_CHECK(use_configuration(device, here, "-Dqk_gemm_pack=qk_else") == QN_E_NOT_FOUND);
    CHILD_CHECK(strstr(qn_last_error(), "no kernel qk_gemm_pack"));
    qn_device_close(device);
}

/** A reference's content is its identity, not its address nor those of its strings. */
static void test_configurations(void **) {
    place *p = make_place(nullptr);
    const char *text = child_run(use_configurations, nullptr, p->env);
    assert_int_equal(count_text(text, "-DQK_UNUSED=2 for gfx942: compiled in"), 1);
    assert_int_equal(count_files(p->cache), 1);
    remove_folder(p->top);
}

// ---- bad images

static const qni_kernel_ref pack_ref = {.image = image, .entry = entry, .defines = "-DQK_UNUSED=7"};

static void fail_to_load(void *) {
    qn_device *device;
    qni_kernel_usage usage;
    CHILD_CHECK(qn_device_open(&device, "sim:gfx942") == QN_OK);
    CHILD_CHECK(qni_kernel_get_usage(device, &pack_ref, &usage) != QN_OK);
    CHILD_CHECK(strstr(qn_last_error(), "code object: "));
    qn_device_close(device);
}

/** The output of a compiler that writes something else is judged before it is kept. */
static void test_bad_image_is_not_kept(void **) {
    char script[128], variable[160];
    place *p = make_place(variable);
    snprintf(script, sizeof script, "%s/clang", p->top);
    snprintf(variable, sizeof variable, "QUERN_CLANG=%s", script);
    write_script(script, "#!/bin/sh\n"
                         "case $1 in --version) echo 'clang version 22.9.9'; exit;; esac\n"
                         "while [ $# -gt 0 ]; do [ $1 = -o ] && echo nonsense >$2; shift; done\n");
    child_run(fail_to_load, nullptr, p->env);
    assert_int_equal(count_files(p->cache), 0);
    remove_folder(p->top);
}

static qn_status refuse(void *, const void *, size_t) {
    return QN_FAIL(QN_E_UNSUPPORTED, "refused by the test");
}

static void get_refused(void *) {
    void *data = nullptr;
    size_t bytes;
    CHILD_CHECK(qni_jit_get(image, nullptr, gfx942(), refuse, nullptr, &data, &bytes) ==
                QN_E_UNSUPPORTED);
    CHILD_CHECK(!data && strstr(qn_last_error(), "refused by the test"));
}

/** An image that is kept but not accepted, for example by a later contract, is built again. */
static void test_kept_image_is_judged(void **) {
    place *p = make_place(nullptr);
    child_run(get_refused, nullptr, p->env);
    assert_int_equal(count_files(p->cache), 0);
    child_run(get_image, nullptr, p->env);
    const char *text = child_run(get_refused, nullptr, p->env);
    assert_non_null(strstr(text, "not loaded from the cache: refused by the test"));
    assert_int_equal(count_text(text, "compiled in"), 1);
    assert_int_equal(count_files(p->tmp), 0);
    remove_folder(p->top);
}

static void test_forbidden(void **) {
    place *p = make_place("QUERN_NO_JIT=1");
    child_run(expect_failure,
              (const char *[]){"QUERN_NO_JIT forbids", "no gemm_pack for gfx942", nullptr}, p->env);
    remove_folder(p->top);
}

static void ask_for_nonsense(void *) {
    void *data = nullptr;
    size_t bytes;
    CHILD_CHECK(qni_jit_get("no_such_image", nullptr, gfx942(), nullptr, nullptr, &data, &bytes) ==
                QN_E_NOT_FOUND);
    CHILD_CHECK(qni_jit_get(image, "-DQK_WRONG=( -Werror -Dint=", gfx942(), nullptr, nullptr, &data,
                            &bytes) == QN_E_DEVICE);
    CHILD_CHECK(strstr(qn_last_error(), "error:")); // clang's own words
}

static void test_nonsense(void **) {
    place *p = make_place(nullptr);
    child_run(ask_for_nonsense, nullptr, p->env);
    assert_int_equal(count_files(p->cache), 0);
    assert_int_equal(count_files(p->tmp), 0);
    remove_folder(p->top);
}

// ---- what is embedded is enough

/** Checks that the JIT makes of an image what the build made. */
static void check_rebuilt(const qni_image *built) {
    const qni_target *target = qni_target_find(built->target, strlen(built->target));
    void *data = nullptr, *embedded = nullptr;
    size_t bytes, embedded_bytes;
    CHILD_CHECK(qni_image_unpack(built, &embedded, &embedded_bytes) == QN_OK);
    CHILD_CHECK(qni_jit_get(built->id, nullptr, target, nullptr, nullptr, &data, &bytes) == QN_OK);
    CHILD_CHECK(bytes == embedded_bytes && memcmp(data, embedded, bytes) == 0);
    free(data);
    free(embedded);
}

/** The JIT makes the very image that the build made, for those images that this build has. */
static void rebuild_all(void *) {
    int rebuilt = 0;
    for (const qni_image *built = qni_images; built->id; built++) {
        if (strcmp(built->target, "gfx942") != 0 || built->packed_bytes > 13000)
            continue; // tries one target, without images that take clang seconds
        check_rebuilt(built);
        rebuilt++;
    }
    CHILD_CHECK(rebuilt > 0);
}

static void test_rebuild(void **) {
    needs_images("gfx942");
    place *p = make_place(nullptr);
    child_run(rebuild_all, nullptr, p->env);
    remove_folder(p->top);
}

/** An image whose defines depend on the target is what the build made, whether the value is one for
 *  the target or that for all other targets. */
static void rebuild_by_target(void *) {
    static const char *const targets[] = {"gfx942", "gfx1151", "gfx1201"};
    int rebuilt = 0;
    for (const qni_image *built = qni_images; built->id; built++) {
        for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
            if (strcmp(built->id, "attention_decode_bf16") == 0 &&
                strcmp(built->target, targets[i]) == 0) {
                check_rebuilt(built);
                rebuilt++;
            }
        }
    }
    CHILD_CHECK(rebuilt > 0);
}

static void test_defines_by_target(void **) {
    needs_images("gfx942");
    place *p = make_place(nullptr);
    child_run(rebuild_by_target, nullptr, p->env);
    remove_folder(p->top);
}

/** The user's settings for another compilation do not leak into this one. */
static void test_foreign_settings(void **) {
    needs_images("gfx942");
    char header[128], variable[160];
    place *p = make_place(variable);
    p->env[4] = "CCC_OVERRIDE_OPTIONS=+-DQK_LEAKED";
    snprintf(header, sizeof header, "%s/stdint.h", p->top);
    snprintf(variable, sizeof variable, "CPATH=%s", p->top);
    FILE *f = fopen(header, "we");
    assert_non_null(f);
    fputs("#error not this one\n", f);
    fclose(f);
    child_run(rebuild_all, nullptr, p->env);
    remove_folder(p->top);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cold_and_warm),
        cmocka_unit_test(test_damaged_is_rebuilt),
        cmocka_unit_test(test_many_cold_processes),
        cmocka_unit_test(test_killed_and_recovered),
        cmocka_unit_test(test_living_neighbour),
        cmocka_unit_test(test_hanging_compiler),
        cmocka_unit_test(test_configurations),
        cmocka_unit_test(test_bad_image_is_not_kept),
        cmocka_unit_test(test_kept_image_is_judged),
        cmocka_unit_test(test_distrusted_folder),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_read_only_folder),
        cmocka_unit_test(test_no_tmp),
        cmocka_unit_test(test_no_clang),
        cmocka_unit_test(test_other_compilers),
        cmocka_unit_test(test_clang_of_rocm),
        cmocka_unit_test(test_forbidden),
        cmocka_unit_test(test_nonsense),
        cmocka_unit_test(test_rebuild),
        cmocka_unit_test(test_defines_by_target),
        cmocka_unit_test(test_foreign_settings),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
