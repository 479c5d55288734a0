// SPDX-License-Identifier: Apache-2.0
// The disk cache: entries that are damaged, foreign or half-written, folders that cannot be trusted
// or written.
#include "../testing.h"
#include "cache.h"

#include <quern/cache.h>

#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>

static const qni_cache_key key = {0x0123456789abcdefu, 0xfedcba9876543210u};
static const char payload[] = "the bytes of an image, or at least as many as one line has";
static char folder[64], name[256];

// ---- the steps for an entry's safety, in order: these functions replace the C library's

static char steps[256];
static size_t num_steps; // bytes of it

static void note_step(const char *what) {
    num_steps += (size_t)snprintf(steps + num_steps, sizeof steps - num_steps, "%s ", what);
}

int fsync(int fd) {
    struct stat s;
    note_step(fstat(fd, &s) == 0 && S_ISDIR(s.st_mode) ? "folder" : "file");
    return (int)syscall(SYS_fsync, fd);
}

int renameat(int from, const char *old, int to, const char *new) {
    note_step("rename");
    return (int)syscall(SYS_renameat2, from, old, to, new, 0);
}

// ---- helpers; each runs in a child whose QUERN_CACHE_DIR is `folder`

static bool can_load(char *problem, size_t room) {
    qni_cache cache;
    void *data = nullptr;
    size_t bytes = 0;
    qni_cache_open(&cache);
    const bool is_loaded = qni_cache_load(&cache, name, key, &data, &bytes, problem, room);
    if (is_loaded)
        CHILD_CHECK(bytes == sizeof payload && memcmp(data, payload, bytes) == 0);
    free(data);
    qni_cache_close(&cache);
    return is_loaded;
}

static void store(void *) {
    qni_cache cache;
    char problem[128];
    qni_cache_open(&cache);
    CHILD_CHECK(qni_cache_lock(&cache, key, 1000));
    CHILD_CHECK(
        qni_cache_store(&cache, name, key, payload, sizeof payload, problem, sizeof problem));
    qni_cache_close(&cache);
}

static const char *entry_path(void) {
    static char path[400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static size_t read_file(char *to, size_t room) {
    FILE *f = fopen(entry_path(), "re");
    CHILD_CHECK(f);
    const size_t bytes = fread(to, 1, room, f);
    fclose(f);
    return bytes;
}

static void write_file(const char *from, size_t bytes) {
    FILE *f = fopen(entry_path(), "we");
    CHILD_CHECK(f && fwrite(from, 1, bytes, f) == bytes && fclose(f) == 0);
}

/** Runs body in a child with an empty cache folder. */
static void in_folder(void (*body)(void *)) {
    char variable[128];
    make_folder(folder, sizeof folder);
    qni_cache_name(name, sizeof name, "image", "gfx942", key);
    snprintf(variable, sizeof variable, "QUERN_CACHE_DIR=%s", folder);
    child_run(body, nullptr, (const char *[]){variable, nullptr});
    remove_folder(folder);
}

// ---- entries

static void store_and_load(void *) {
    char problem[128];
    CHILD_CHECK(!can_load(problem, sizeof problem) && strcmp(problem, "absent") == 0);
    store(nullptr);
    CHILD_CHECK(can_load(problem, sizeof problem));
    store(nullptr); // over what is there
    CHILD_CHECK(can_load(problem, sizeof problem));
    struct stat s;
    CHILD_CHECK(stat(entry_path(), &s) == 0 && (s.st_mode & 0777) == 0600);
    CHILD_CHECK(strcmp(name, "image.gfx942.fedcba98765432100123456789abcdef.image") == 0);
}

static void refuse_damage(void *) {
    char whole[256], problem[128];
    store(nullptr);
    const size_t bytes = read_file(whole, sizeof whole - 1);
    for (size_t length = 0; length < bytes; length++) { // truncated anywhere
        write_file(whole, length);
        CHILD_CHECK(!can_load(problem, sizeof problem) && *problem);
    }
    write_file(whole, bytes + 1); // a byte too many
    CHILD_CHECK(!can_load(problem, sizeof problem));
    for (size_t bit = 0; bit < 8 * bytes; bit++) { // any bit flipped
        whole[bit / 8] ^= (char)(1 << bit % 8);
        write_file(whole, bytes);
        if (can_load(problem, sizeof problem)) {
            fprintf(stderr, "bit %zu of %zu flipped, and still loaded\n", bit, 8 * bytes);
            _exit(1);
        }
        whole[bit / 8] ^= (char)(1 << bit % 8);
    }
    write_file(whole, bytes);
    CHILD_CHECK(can_load(problem, sizeof problem));
    whole[0] = 'x';
    write_file(whole, bytes);
    store(nullptr); // a damaged entry is replaced
    CHILD_CHECK(can_load(problem, sizeof problem));
}

static void refuse_foreign(void *) {
    char problem[128];
    static const char *const elsewhere = "elsewhere.image";
    store(nullptr);
    CHILD_CHECK(chmod(entry_path(), 0620) == 0);
    CHILD_CHECK(!can_load(problem, sizeof problem) && strstr(problem, "others can write"));
    CHILD_CHECK(chmod(entry_path(), 0600) == 0 && can_load(problem, sizeof problem));
    if (geteuid() == 0) {
        CHILD_CHECK(chown(entry_path(), 1, 1) == 0);
        CHILD_CHECK(!can_load(problem, sizeof problem) && strstr(problem, "another user"));
        CHILD_CHECK(chown(entry_path(), 0, 0) == 0 && can_load(problem, sizeof problem));
    }
    // A link to a sound entry is not an entry; nor is a folder.
    CHILD_CHECK(chdir(folder) == 0 && rename(name, elsewhere) == 0);
    CHILD_CHECK(symlink(elsewhere, name) == 0);
    CHILD_CHECK(!can_load(problem, sizeof problem));
    CHILD_CHECK(unlink(name) == 0 && mkdir(name, 0700) == 0);
    CHILD_CHECK(!can_load(problem, sizeof problem));
    CHILD_CHECK(rmdir(name) == 0);
    // Another image's entry under this name.
    qni_cache cache;
    qni_cache_key other = {key.low + 1, key.high};
    qni_cache_open(&cache);
    CHILD_CHECK(qni_cache_lock(&cache, other, 100));
    CHILD_CHECK(qni_cache_store(&cache, name, other, payload, sizeof payload, problem, 128));
    qni_cache_close(&cache);
    CHILD_CHECK(!can_load(problem, sizeof problem) && strstr(problem, "something else"));
}

static void replace_partial(void *) {
    char path[512], problem[128];
    snprintf(path, sizeof path, "%s/.partial.%s", folder, name);
    const int fd = open(path, O_CREAT | O_WRONLY, 0600); // left by a writer that was killed
    CHILD_CHECK(fd >= 0 && write(fd, "qu", 2) == 2 && close(fd) == 0);
    store(nullptr);
    CHILD_CHECK(can_load(problem, sizeof problem));
    CHILD_CHECK(access(path, F_OK) != 0);
}

typedef struct listing {
    int count, bad;
    char names[8][256];
    int64_t bytes;
} listing;

static void note_entry(void *context, const qn_cache_entry *entry) {
    listing *l = context;
    CHILD_CHECK(l->count < 8);
    snprintf(l->names[l->count++], 256, "%s", entry->name);
    l->bad += entry->problem != nullptr;
    l->bytes += entry->bytes;
    CHILD_CHECK(entry->modified_unix >= 0 && entry->modified_unix <= time(nullptr) + 1);
}

/** A pipe, a socket or a folder in an entry's place is replaced, and nothing waits for it. */
static void replace_no_file(void *) {
    char problem[128];
    int64_t removed;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    alarm(10); // the fault would be to wait
    for (int kind = 0; kind < 4; kind++) {
        const int fd = kind == 2 ? socket(AF_UNIX, SOCK_STREAM, 0) : -1;
        snprintf(address.sun_path, sizeof address.sun_path, "%s", entry_path());
        CHILD_CHECK((kind == 0   ? mkfifo(entry_path(), 0600)
                     : kind == 1 ? mkdir(entry_path(), 0700)
                     : kind == 2 ? bind(fd, (void *)&address, sizeof address)
                                 : symlink("/dev/zero", entry_path())) == 0);
        CHILD_CHECK(!can_load(problem, sizeof problem));
        listing l = {0};
        CHILD_CHECK(qn_cache_list(note_entry, &l) == QN_OK && l.count == 1 && l.bad == 1);
        store(nullptr);
        CHILD_CHECK(can_load(problem, sizeof problem));
        CHILD_CHECK(qn_cache_clear(&removed) == QN_OK && removed == 1);
        close(fd);
    }
    CHILD_CHECK(mkdir(entry_path(), 0700) == 0);
    CHILD_CHECK(qn_cache_clear(&removed) == QN_OK && removed == 1);
}

/** An entry must go through these steps in order, so that a power cut leaves it whole or
 *  absent. */
static void sync_in_order(void *) {
    num_steps = 0;
    store(nullptr);
    CHILD_CHECK(strcmp(steps, "file rename folder ") == 0);
}

static void test_entries(void **) {
    in_folder(store_and_load);
    in_folder(refuse_damage);
    in_folder(refuse_foreign);
    in_folder(replace_partial);
    in_folder(replace_no_file);
    in_folder(sync_in_order);
}

// ---- locks

static void take_lock(void *) {
    qni_cache a, b;
    qni_cache_key other = {key.low + 4, key.high}; // of another byte
    qni_cache_open(&a);
    qni_cache_open(&b);
    CHILD_CHECK(qni_cache_lock(&a, key, 0));
    CHILD_CHECK(!qni_cache_lock(&b, key, 50));
    CHILD_CHECK(qni_cache_lock(&b, other, 0));
    qni_cache_unlock(&b);
    qni_cache_unlock(&a);
    CHILD_CHECK(qni_cache_lock(&b, key, 0));
    qni_cache_close(&b);
    qni_cache_close(&a);
}

static void lock_dies_with_its_holder(void *) {
    int ready[2];
    char byte;
    CHILD_CHECK(pipe(ready) == 0);
    pid_t holder = fork();
    if (holder == 0) {
        qni_cache cache;
        qni_cache_open(&cache);
        if (qni_cache_lock(&cache, key, 0) && write(ready[1], "y", 1) == 1)
            pause();
        _exit(1);
    }
    qni_cache cache;
    CHILD_CHECK(read(ready[0], &byte, 1) == 1);
    qni_cache_open(&cache);
    CHILD_CHECK(!qni_cache_lock(&cache, key, 20));
    kill(holder, SIGKILL);
    CHILD_CHECK(qni_cache_lock(&cache, key, 5000));
    qni_cache_close(&cache);
    waitpid(holder, nullptr, 0);
}

static void test_locks(void **) {
    in_folder(take_lock);
    in_folder(lock_dies_with_its_holder);
}

// ---- folders

static void make_nested(void *) {
    char problem[128];
    store(nullptr);
    CHILD_CHECK(can_load(problem, sizeof problem));
    struct stat s;
    CHILD_CHECK(stat(qni_env_get()->cache_dir, &s) == 0 && (s.st_mode & 0777) == 0700);
}

static void find_unusable(void *word) {
    qni_cache cache;
    char problem[128];
    qni_cache_open(&cache);
    CHILD_CHECK(cache.folder < 0 && strstr(cache.problem, word));
    CHILD_CHECK(!qni_cache_lock(&cache, key, 0));
    qni_cache_close(&cache);
    CHILD_CHECK(!can_load(problem, sizeof problem));
}

static void refuse_list(void *) {
    CHILD_CHECK(qn_cache_list((qn_cache_fn)(void (*)(void))abort, nullptr) == QN_E_IO);
    CHILD_CHECK(qn_cache_clear(nullptr) == QN_E_IO);
}

static void test_folders(void **) {
    char variable[128], file[128];
    make_folder(folder, sizeof folder);
    qni_cache_name(name, sizeof name, "image", "gfx942", key);
    const char *const env[] = {variable, nullptr};
    snprintf(variable, sizeof variable, "QUERN_CACHE_DIR=%s/a/b/c", folder);
    child_run(make_nested, nullptr, env);
    snprintf(variable, sizeof variable, "XDG_CACHE_HOME=%s/x", folder);
    child_run(make_nested, nullptr, (const char *[]){variable, "QUERN_CACHE_DIR", nullptr});
    snprintf(file, sizeof file, "%s/x/quern/.lock", folder);
    assert_int_equal(access(file, F_OK), 0);
    snprintf(variable, sizeof variable, "HOME=%s/h", folder);
    child_run(make_nested, nullptr,
              (const char *[]){variable, "QUERN_CACHE_DIR", "XDG_CACHE_HOME=relative", nullptr});
    child_run(find_unusable, "no home",
              (const char *[]){"HOME", "QUERN_CACHE_DIR", "XDG_CACHE_HOME", nullptr});
    snprintf(variable, sizeof variable, "QUERN_CACHE_DIR=%s", folder);
    assert_int_equal(chmod(folder, 0770), 0);
    child_run(find_unusable, "others can write to it", env);
    child_run(refuse_list, nullptr, env);
    assert_int_equal(chmod(folder, 0700), 0);
    if (geteuid() == 0) {
        assert_int_equal(chown(folder, 1, 1), 0);
        child_run(find_unusable, "belongs to another user", env);
        assert_int_equal(chown(folder, 0, 0), 0);
    }
    snprintf(variable, sizeof variable, "QUERN_CACHE_DIR=%s/x/quern/.lock", folder);
    child_run(find_unusable, "Not a directory", env);
    remove_folder(folder);
}

static void fail_to_store(void *) {
    qni_cache cache;
    char problem[128], big[65536];
    memset(big, 'b', sizeof big);
    qni_cache_open(&cache);
    CHILD_CHECK(cache.folder >= 0 && qni_cache_lock(&cache, key, 0));
    CHILD_CHECK(!qni_cache_store(&cache, name, key, big, sizeof big, problem, sizeof problem));
    CHILD_CHECK(strstr(problem, "No space left"));
    qni_cache_close(&cache);
    CHILD_CHECK(access(entry_path(), F_OK) !=
                0); // nothing under the final name, nothing left beside it
    char path[512];
    snprintf(path, sizeof path, "%s/.partial.%s", folder, name);
    CHILD_CHECK(access(path, F_OK) != 0);
}

static void fail_to_lock(void *) {
    qni_cache cache;
    char problem[128];
    CHILD_CHECK(can_load(problem, sizeof problem)); // reading works
    qni_cache_open(&cache);
    CHILD_CHECK(cache.folder >= 0 && !qni_cache_lock(&cache, key, 0));
    qni_cache_close(&cache);
}

static void test_full_and_read_only(void **) {
    char variable[128];
    make_folder(folder, sizeof folder);
    qni_cache_name(name, sizeof name, "image", "gfx942", key);
    snprintf(variable, sizeof variable, "QUERN_CACHE_DIR=%s", folder);
    const char *const env[] = {variable, nullptr};
    if (mount("quern-test", folder, "tmpfs", 0, "size=32k,mode=0700") != 0) {
        rmdir(folder);
        print_message("a small file system needs root: %s\n", strerror(errno));
        skip();
    }
    child_run(fail_to_store, nullptr, env);
    child_run(store, nullptr, env); // a small entry fits
    assert_int_equal(mount(nullptr, folder, nullptr, MS_REMOUNT | MS_RDONLY, nullptr), 0);
    child_run(fail_to_lock, nullptr, env);
    assert_int_equal(umount(folder), 0);
    rmdir(folder);
}

// ---- the user's view

static void list_and_clear(void *) {
    char path[256], small[3];
    int64_t removed = -1;
    listing l = {0};
    CHILD_CHECK(qn_cache_path(path, sizeof path) == QN_OK && strcmp(path, folder) == 0);
    CHILD_CHECK(qn_cache_path(small, sizeof small) == QN_E_INVALID);
    CHILD_CHECK(qn_cache_list(nullptr, nullptr) == QN_E_INVALID);
    store(nullptr);
    for (const char *const *file = (const char *const[]){"damaged.gfx942.0.image", "notes.txt",
                                                         ".partial.x.image", nullptr};
         *file; file++) {
        snprintf(path, sizeof path, "%s/%s", folder, *file);
        const int fd = open(path, O_CREAT | O_WRONLY, 0600);
        CHILD_CHECK(fd >= 0 && write(fd, "12345", 5) == 5 && close(fd) == 0);
    }
    CHILD_CHECK(qn_cache_list(note_entry, &l) == QN_OK);
    CHILD_CHECK(l.count == 2 && l.bad == 1 && l.bytes == 5 + 48 + (int64_t)sizeof payload);
    CHILD_CHECK(strcmp(l.names[0], "damaged.gfx942.0.image") == 0 && strcmp(l.names[1], name) == 0);
    CHILD_CHECK(qn_cache_clear(&removed) == QN_OK && removed == 2);
    l = (listing){0};
    CHILD_CHECK(qn_cache_list(note_entry, &l) == QN_OK && l.count == 0);
    snprintf(path, sizeof path, "%s/notes.txt", folder); // not ours, not touched
    CHILD_CHECK(access(path, F_OK) == 0);
    snprintf(path, sizeof path, "%s/.partial.x.image", folder);
    CHILD_CHECK(access(path, F_OK) != 0);
}

static void see_nothing(void *) {
    int64_t removed = -1;
    listing l = {0};
    CHILD_CHECK(qn_cache_list(note_entry, &l) == QN_OK && l.count == 0);
    CHILD_CHECK(qn_cache_clear(&removed) == QN_OK && removed == 0);
}

static void test_view(void **) {
    in_folder(list_and_clear);
    child_run(see_nothing, nullptr,
              (const char *[]){"QUERN_CACHE_DIR=/nonexistent/quern-cache", nullptr});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_entries), cmocka_unit_test(test_locks),
        cmocka_unit_test(test_folders), cmocka_unit_test(test_full_and_read_only),
        cmocka_unit_test(test_view),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
