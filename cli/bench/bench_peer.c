// SPDX-License-Identifier: Apache-2.0
// bench --peer: the Python scripts of bench/ time the library beside another one in one process.
#include "../file.h"
#include "attention_plot.h"
#include "bench.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { MAX_ARGUMENTS = 32, MAX_SPEEDS = 512 };

/** A command line in the making, and the memory of its numbers. */
typedef struct arguments {
    const char *items[MAX_ARGUMENTS + 1];
    int count;
    char numbers[MAX_ARGUMENTS][24];
} arguments;

static void add(arguments *a, const char *name, const char *value) {
    a->items[a->count++] = name;
    if (value)
        a->items[a->count++] = value;
}

static void add_number(arguments *a, const char *name, int64_t value) {
    char *text = a->numbers[a->count];
    snprintf(text, sizeof a->numbers[0], "%" PRId64, value);
    add(a, name, text);
}

// ---- running a script

/** Returns the path of the script as installed, or in the tree of this build folder; the caller
 *  frees it. */
static char *find_script(const char *name) {
    static const char *const places[] = {"../share/quern", "../../bench"};
    char program[4096] = "";
    if (readlink("/proc/self/exe", program, sizeof program - 1) < 0)
        return nullptr;
    *strrchr(program, '/') = '\0';
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char *folder = cli_path(program, places[i]), *path = cli_path(folder, name);
        free(folder);
        if (access(path, R_OK) == 0)
            return path;
        free(path);
    }
    return nullptr;
}

/** Runs Python with an argument vector, and waits for its end. */
static qn_status run_script(const bench_options *o, const char *script, arguments *a) {
    pid_t child;
    int status;
    fflush(stdout);
    a->items[a->count] = nullptr;
    const int failed =
        posix_spawnp(&child, o->python, nullptr, nullptr, (char *const *)a->items, environ);
    if (failed)
        return cli_fail(QN_E_NOT_FOUND, "option --python: %s: %s", o->python, strerror(failed));
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return cli_fail(QN_E_IO, "%s: %s", script, strerror(errno));
    return WIFEXITED(status) && WEXITSTATUS(status) == 0
               ? QN_OK
               : cli_fail(QN_E_IO, "%s: ended with status %d; does %s have %s?", script,
                          WIFEXITED(status) ? WEXITSTATUS(status) : -1, o->python, o->peer);
}

/** Finds the script of this library, and begins its arguments with those that every script takes;
 *  the caller frees *script. */
static qn_status begin(const bench_options *o, const char *name, arguments *a, char **script) {
    Dl_info library;
    *script = find_script(name);
    if (!*script || !dladdr((void *)qn_version, &library))
        return cli_fail(QN_E_NOT_FOUND, "option --peer: no %s beside the installed command", name);
    add(a, o->python, *script);
    add(a, "--library", library.dli_fname);
    add_number(a, "--runs", o->runs);
    if (o->as_json)
        add(a, "--json", "-");
    return QN_OK;
}

static qn_status run_gemm(const bench_options *o) {
    arguments a = {0};
    char *script = nullptr;
    if (o->spec && strcmp(o->spec, "cpu") != 0)
        return cli_fail(QN_E_INVALID, "option --peer: gemm: found device %s, accepted: cpu",
                        o->spec);
    if (o->plot_path)
        return cli_fail(QN_E_INVALID, "option --svg: with --peer, attention is drawn, gemm is not");
    qn_status st;
    CLI_TRY_OUT(begin(o, "peers.py", &a, &script));
    add(&a, "--m", o->m_list);
    add_number(&a, "--n", o->n);
    add_number(&a, "--k", o->k);
    CLI_TRY_OUT(run_script(o, script, &a));
out:
    free(script);
    return st;
}

// ---- attention's figures, from JSON to a picture

typedef struct speeds {
    attention_speed items[MAX_SPEEDS];
    int count;
} speeds;

/** Adds a side's speed, which `figures` has under the two names unless the side has refused the
 *  problem. */
static void add_speed(speeds *s, const char *side, const json_t *row, const json_t *figures,
                      const char *gflops, const char *gigabytes) {
    const char *kind = json_string_value(json_object_get(row, "kind"));
    const bool is_decode = strcmp(kind, "decode") == 0;
    const json_t *speed = json_object_get(figures, is_decode ? gigabytes : gflops);
    if (!speed || s->count == MAX_SPEEDS)
        return;
    s->items[s->count++] =
        (attention_speed){.side = side,
                          .kind = is_decode                     ? ATTENTION_DECODE
                                  : strcmp(kind, "causal") == 0 ? ATTENTION_CAUSAL
                                                                : ATTENTION_WHOLE,
                          .seq = json_integer_value(json_object_get(row, "seq")),
                          .a_second = json_number_value(speed) * 1e9};
}

static void read_speeds(speeds *s, json_t *figures) {
    size_t i;
    json_t *row, *backend;
    const char *name;
    json_array_foreach(json_object_get(figures, "rows"), i, row) {
        if (!json_is_string(json_object_get(row, "kind")))
            continue;
        add_speed(s, "quern", row, row, "quern_gflops", "quern_gb_s");
        json_object_foreach(json_object_get(row, "backends"), name, backend)
            add_speed(s, name, row, backend, "gflops", "gb_s");
    }
}

static qn_status draw(const bench_options *o, const qn_device_info *device, int file) {
    json_error_t error;
    lseek(file, 0, SEEK_SET);
    json_t *figures = json_loadfd(file, 0, &error);
    if (!figures)
        return cli_fail(QN_E_IO, "option --peer: no figures of attention: %s", error.text);
    cli_limits limits;
    cli_limits_get(&limits, device);
    speeds *s = cli_alloc(sizeof *s);
    read_speeds(s, figures);
    char *text = attention_draw(device, &limits, s->items, s->count);
    const qn_status st = cli_write_text(o->plot_path, text, o->force);
    free(text);
    free(s);
    json_decref(figures);
    return st;
}

// ---- attention

/** Adds the device that PyTorch is to use. On GPUs times are of graphs, without the host's
 *  part. */
static qn_status add_device(arguments *a, const qn_device_info *info) {
    if (info->wave_size == 1) {
        add(a, "--device", "cpu");
        add_number(a, "--threads", info->num_compute_units);
        return QN_OK;
    }
    if (strncmp(info->spec, "cuda:", 5) != 0 && strncmp(info->spec, "hip:", 4) != 0)
        return cli_fail(QN_E_INVALID,
                        "option --peer: attention: found device %s, accepted: cpu, cuda:N, hip:N",
                        info->spec);
    add(a, "--device", info->spec);
    add(a, "--graph", nullptr);
    return QN_OK;
}

static qn_status run_attention(const bench_options *o) {
    arguments a = {0};
    char *script = nullptr, path[40];
    cli_device device = {0};
    int file = -1;
    qn_status st;
    CLI_TRY_OUT(cli_output_check(o->plot_path, o->force));
    CLI_TRY_OUT(cli_device_open(&device, o->spec));
    const qn_device_info info = device.info;
    cli_device_close(&device);
    CLI_TRY_OUT(begin(o, "peer_attention.py", &a, &script));
    CLI_TRY_OUT(add_device(&a, &info));
    add(&a, "--seq", o->seq_list);
    if (o->plot_path) {
        file = memfd_create("figures", 0);
        if (file < 0)
            CLI_TRY_OUT(cli_fail(QN_E_IO, "option --svg: %s", strerror(errno)));
        snprintf(path, sizeof path, "/dev/fd/%d", file);
        add(&a, "--json", path);
    }
    CLI_TRY_OUT(run_script(o, script, &a));
    if (o->plot_path)
        CLI_TRY_OUT(draw(o, &info, file));
out:
    if (file >= 0)
        close(file);
    free(script);
    return st;
}

qn_status bench_run_peer(const bench_options *options, bool is_attention) {
    return is_attention ? run_attention(options) : run_gemm(options);
}
