// SPDX-License-Identifier: Apache-2.0
// hiprtc: programs are compiled by the clang of this machine, with the headers and device libraries
// of an installed ROCm or of a tree like it (tools/rocm_tree.sh).
//
// A name expression becomes a pointer at the end of the source; clang's assembly says what it
// points to. So a program is compiled to assembly, which is then assembled.
#include "../runtime.h"
#include "clang.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct text {
    struct text *next;
    char *name, *body; // of a header: how it is included; of an expression: what it is lowered to
} text;

struct _hiprtcProgram {
    char *source, *name;
    text *headers, *expressions;
    bool is_compiled, is_bitcode;
    bool is_compiling, is_destroyed; // by one thread; by another one, meanwhile
    char *log, *code;
    size_t log_bytes, code_bytes; // log_bytes with the zero behind it
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // of all programs, but while one compiles

// ---- lists

static bool add_text(text **list, const char *name, const char *body) {
    text *t = calloc(1, sizeof *t);
    if (t) {
        *t = (text){nullptr, strdup(name), body ? strdup(body) : nullptr};
        while (*list)
            list = &(*list)->next;
        *list = t;
    }
    return t && t->name && (!body || t->body);
}

static void free_texts(text *list) {
    for (text *next; list; list = next) {
        next = list->next;
        free(list->name);
        free(list->body);
        free(list);
    }
}

static void free_program(hiprtcProgram p) {
    free_texts(p->headers);
    free_texts(p->expressions);
    free(p->source);
    free(p->name);
    free(p->log);
    free(p->code);
    free(p);
}

/** Takes the lock for a program. Returns false, without the lock, if the handle is no program's. */
static bool enter(hiprtcProgram p) {
    pthread_mutex_lock(&lock);
    if (p && sim_handle_is(SIM_HANDLE_PROGRAM, p))
        return true;
    pthread_mutex_unlock(&lock);
    return false;
}

static hiprtcResult leave(hiprtcResult result) {
    pthread_mutex_unlock(&lock);
    return result;
}

void sim_rtc_free_all(void) {
    for (hiprtcProgram p; (p = sim_handle_take(SIM_HANDLE_PROGRAM));)
        free_program(p);
    rtc_links_free_all();
}

// ---- making

hiprtcResult hiprtcVersion(int *major, int *minor) {
    if (!major || !minor)
        return HIPRTC_ERROR_INVALID_INPUT;
    *major = HIP_VERSION / 10000000;
    *minor = HIP_VERSION / 100000 % 100;
    return HIPRTC_SUCCESS;
}

hiprtcResult hiprtcCreateProgram(hiprtcProgram *out, const char *source, const char *name,
                                 int num_headers, const char **headers,
                                 const char **include_names) {
    if (!out || !source)
        return out ? HIPRTC_ERROR_INVALID_PROGRAM : HIPRTC_ERROR_INVALID_INPUT;
    if (num_headers < 0 || (num_headers && (!headers || !include_names)))
        return HIPRTC_ERROR_INVALID_INPUT;
    hiprtcProgram p = calloc(1, sizeof *p);
    if (!p)
        return HIPRTC_ERROR_OUT_OF_MEMORY;
    p->source = strdup(source);
    p->name = strdup(name && *name ? name : "program");
    bool ok = p->source && p->name;
    for (int i = 0; ok && i < num_headers; i++)
        ok = headers[i] && include_names[i] && add_text(&p->headers, include_names[i], headers[i]);
    if (!ok || !sim_handle_add(SIM_HANDLE_PROGRAM, p)) {
        free_program(p);
        return HIPRTC_ERROR_PROGRAM_CREATION_FAILURE;
    }
    *out = p;
    return HIPRTC_SUCCESS;
}

hiprtcResult hiprtcDestroyProgram(hiprtcProgram *program) {
    if (!program)
        return HIPRTC_ERROR_INVALID_INPUT;
    if (!enter(*program))
        return HIPRTC_ERROR_INVALID_PROGRAM;
    sim_handle_remove(SIM_HANDLE_PROGRAM, *program);
    (*program)->is_destroyed = true;
    if (!(*program)->is_compiling)
        free_program(*program);
    *program = nullptr;
    return leave(HIPRTC_SUCCESS);
}

hiprtcResult hiprtcAddNameExpression(hiprtcProgram p, const char *expression) {
    if (!expression)
        return HIPRTC_ERROR_INVALID_INPUT;
    if (!enter(p))
        return HIPRTC_ERROR_INVALID_PROGRAM;
    if (p->is_compiled || p->is_compiling)
        return leave(HIPRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION);
    return leave(add_text(&p->expressions, expression, nullptr) ? HIPRTC_SUCCESS
                                                                : HIPRTC_ERROR_OUT_OF_MEMORY);
}

// ---- compiling

/** Writes the source, with a pointer for each name expression behind it. */
static bool write_source(const struct _hiprtcProgram *p, const char *folder) {
    char *source = nullptr;
    size_t bytes;
    FILE *to = open_memstream(&source, &bytes);
    if (!to)
        return false;
    fprintf(to, "# 1 \"%s\"\n%s\n", p->name, p->source);
    unsigned i = 0;
    for (const text *t = p->expressions; t; t = t->next, i++)
        fprintf(to,
                "extern \"C\" __device__ __attribute__((used)) const void *const "
                "__hiprtc_name_%u = (const void *)&%s;\n",
                i, t->name + strspn(t->name, " &"));
    bool ok = fclose(to) == 0 && rtc_write(folder, "program.hip", source, bytes) &&
              rtc_write_builtins(folder);
    free(source);
    for (const text *t = p->headers; ok && t; t = t->next)
        ok = rtc_write(folder, t->name, t->body, strlen(t->body));
    return ok;
}

/** Adds the program's options. Options of the architecture are clang's or CUDA's. Returns whether
 *  one of them names an architecture. */
static bool add_options(rtc_args *args, int count, const char **options, bool *is_rdc) {
    bool has_arch = false;
    for (int i = 0; i < count; i++) {
        const char *o = options[i], *arch = nullptr;
        for (const char *const *name =
                 (const char *const[]){"--gpu-architecture=", "-arch=", "--offload-arch=", nullptr};
             *name && !arch; name++)
            arch = strncmp(o, *name, strlen(*name)) == 0 ? o + strlen(*name) : nullptr;
        has_arch |= arch != nullptr;
        *is_rdc |= strcmp(o, "-fgpu-rdc") == 0;
        if (strcmp(o, "-mwavefrontsize64") == 0)
            rtc_arg(args, "-D__AMDGCN_WAVEFRONT_SIZE=64");
        if (arch)
            rtc_arg(args, "--offload-arch=%s", arch);
        else
            rtc_arg(args, "%s", o);
    }
    return has_arch;
}

/** Compiles the source to assembly or bitcode. */
static bool compile(const char *folder, const char *output, const char *form, int count,
                    const char **options, bool *is_rdc) {
    rtc_args args = {};
    // The version comes first: without it clang takes the device for one that has no malloc.
    const char *const fixed[] = {"-x",
                                 "hip",
                                 "--cuda-device-only",
                                 "--no-gpu-bundle-output",
                                 "-D__HIPCC_RTC__",
                                 "-O3",
                                 "-std=c++17",
                                 "-imacros",
                                 "hip/hip_version.h",
                                 "-include",
                                 RTC_BUILTINS};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        rtc_arg(&args, "%s", fixed[i]);
    rtc_arg(&args, "--rocm-path=%s", rtc_rocm());
    rtc_arg(&args, "-I%s", folder);
    if (!add_options(&args, count, options, is_rdc))
        rtc_arg(&args, "--offload-arch=%s", sim_hip_device()->chip->name);
    if (strcmp(form, "bitcode") == 0)
        rtc_arg(&args, "-emit-llvm");
    rtc_arg(&args, strcmp(form, "bitcode") == 0 ? "-c" : "-S");
    rtc_arg(&args, "%s/program.hip", folder);
    rtc_arg(&args, "-o");
    rtc_arg(&args, "%s/%s", folder, output);
    const bool ok = rtc_run_clang(folder, &args);
    rtc_args_clear(&args);
    return ok;
}

/** Assembles and links program.s; its first lines say for which chip. */
static bool assemble(const char *folder, const char *assembly) {
    char chip[64] = "";
    const char *target = strstr(assembly, ".amdgcn_target \"amdgcn-amd-amdhsa--");
    if (!target || sscanf(target, ".amdgcn_target \"amdgcn-amd-amdhsa--%63[^\"]", chip) != 1)
        return false;
    rtc_args args = {};
    rtc_arg(&args, "--target=amdgcn-amd-amdhsa");
    rtc_arg(&args, "-mcpu=%s", chip);
    rtc_arg(&args, "%s/program.s", folder);
    rtc_arg(&args, "-o");
    rtc_arg(&args, "%s/program.co", folder);
    const bool ok = rtc_run_clang(folder, &args);
    rtc_args_clear(&args);
    return ok;
}

/** Finds in the assembly what each name expression points to. */
static bool lower_names(hiprtcProgram p, const char *assembly) {
    unsigned i = 0;
    for (text *t = p->expressions; t; t = t->next, i++) {
        char label[40], name[4096];
        snprintf(label, sizeof label, "\n__hiprtc_name_%u:", i);
        const char *at = strstr(assembly, label);
        if (!at || sscanf(at + strlen(label), " .quad %4095s", name) != 1)
            return false;
        free(t->body);
        t->body = strdup(name);
    }
    return true;
}

/** Compiles a program, which nobody else changes meanwhile. */
static bool build(hiprtcProgram p, const char *folder, int count, const char **options) {
    bool is_rdc = false;
    size_t bytes;
    if (!write_source(p, folder) ||
        !compile(folder, "program.s", "assembly", count, options, &is_rdc))
        return false;
    char *assembly = rtc_read(folder, "program.s", &bytes);
    bool ok = assembly && lower_names(p, assembly);
    if (ok)
        ok = is_rdc ? compile(folder, "program.bc", "bitcode", count, options, &is_rdc)
                    : assemble(folder, assembly);
    free(assembly);
    if (ok)
        p->code = rtc_read(folder, is_rdc ? "program.bc" : "program.co", &p->code_bytes);
    p->is_bitcode = is_rdc;
    return ok && p->code;
}

static hiprtcResult check_options(int count, const char **options) {
    if (count < 0 || (count && !options))
        return HIPRTC_ERROR_INVALID_INPUT;
    for (int i = 0; i < count; i++)
        if (!options[i] || !*options[i])
            return HIPRTC_ERROR_INVALID_OPTION;
    return HIPRTC_SUCCESS;
}

/** Takes a program for one compilation, and forgets what an earlier one has made. */
static hiprtcResult begin(hiprtcProgram p, int count, const char **options) {
    if (!enter(p))
        return HIPRTC_ERROR_INVALID_PROGRAM;
    const hiprtcResult result = check_options(count, options);
    if (result != HIPRTC_SUCCESS || p->is_compiling)
        return leave(result != HIPRTC_SUCCESS ? result : HIPRTC_ERROR_INTERNAL_ERROR);
    free(p->code);
    free(p->log);
    p->code = p->log = nullptr;
    p->log_bytes = 0;
    p->is_compiled = false;
    p->is_compiling = true;
    return leave(HIPRTC_SUCCESS);
}

static void end(hiprtcProgram p, bool is_compiled) {
    pthread_mutex_lock(&lock);
    p->is_compiling = false;
    p->is_compiled = is_compiled;
    if (p->is_destroyed)
        free_program(p);
    pthread_mutex_unlock(&lock);
}

hiprtcResult hiprtcCompileProgram(hiprtcProgram p, int num_options, const char **options) {
    char folder[RTC_PATH_BYTES];
    hiprtcResult result = begin(p, num_options, options);
    if (result != HIPRTC_SUCCESS)
        return result;
    if (sim_hip_start() == hipSuccess && rtc_folder_create(folder)) {
        result = build(p, folder, num_options, options) ? result : HIPRTC_ERROR_COMPILATION;
        p->log = rtc_read(folder, "log", &p->log_bytes);
        p->log_bytes = p->log && p->log_bytes ? p->log_bytes + 1 : 0;
        rtc_folder_remove(folder);
    } else {
        result = HIPRTC_ERROR_INTERNAL_ERROR;
    }
    end(p, result == HIPRTC_SUCCESS);
    return result;
}

// ---- results

hiprtcResult hiprtcGetLoweredName(hiprtcProgram p, const char *expression, const char **out) {
    if (!expression || !out)
        return HIPRTC_ERROR_INVALID_INPUT;
    if (!enter(p))
        return HIPRTC_ERROR_INVALID_PROGRAM;
    if (!p->is_compiled)
        return leave(HIPRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION);
    const text *t = p->expressions;
    while (t && strcmp(t->name, expression) != 0)
        t = t->next;
    if (t)
        *out = t->body;
    return leave(t ? HIPRTC_SUCCESS : HIPRTC_ERROR_NAME_EXPRESSION_NOT_VALID);
}

hiprtcResult hiprtcGetProgramLogSize(hiprtcProgram p, size_t *bytes) {
    if (!bytes || !enter(p))
        return bytes ? HIPRTC_ERROR_INVALID_PROGRAM : HIPRTC_ERROR_INVALID_INPUT;
    *bytes = p->is_compiling ? 0 : p->log_bytes;
    return leave(HIPRTC_SUCCESS);
}

hiprtcResult hiprtcGetProgramLog(hiprtcProgram p, char *log) {
    if (!log || !enter(p))
        return log ? HIPRTC_ERROR_INVALID_PROGRAM : HIPRTC_ERROR_INVALID_INPUT;
    if (!p->is_compiling && p->log_bytes)
        memcpy(log, p->log, p->log_bytes);
    return leave(HIPRTC_SUCCESS);
}

/** Gives the size of a program's code, or bitcode, as is asked, and copies it: either may be
 *  null. */
static hiprtcResult give_code(hiprtcProgram p, bool is_bitcode, size_t *bytes, char *code) {
    if (!bytes && !code)
        return HIPRTC_ERROR_INVALID_INPUT;
    if (!enter(p))
        return HIPRTC_ERROR_INVALID_PROGRAM;
    if (!p->is_compiled || p->is_bitcode != is_bitcode)
        return leave(HIPRTC_ERROR_INVALID_PROGRAM);
    if (bytes)
        *bytes = p->code_bytes;
    if (code)
        memcpy(code, p->code, p->code_bytes);
    return leave(HIPRTC_SUCCESS);
}

hiprtcResult hiprtcGetCodeSize(hiprtcProgram p, size_t *bytes) {
    return give_code(p, false, bytes, nullptr);
}

hiprtcResult hiprtcGetCode(hiprtcProgram p, char *code) {
    return give_code(p, false, nullptr, code);
}

hiprtcResult hiprtcGetBitcodeSize(hiprtcProgram p, size_t *bytes) {
    return give_code(p, true, bytes, nullptr);
}

hiprtcResult hiprtcGetBitcode(hiprtcProgram p, char *bitcode) {
    return give_code(p, true, nullptr, bitcode);
}

const char *hiprtcGetErrorString(hiprtcResult result) {
    switch (result) {
#define NAME(value)                                                                                \
    case value:                                                                                    \
        return #value;
        NAME(HIPRTC_SUCCESS)
        NAME(HIPRTC_ERROR_OUT_OF_MEMORY)
        NAME(HIPRTC_ERROR_PROGRAM_CREATION_FAILURE)
        NAME(HIPRTC_ERROR_INVALID_INPUT)
        NAME(HIPRTC_ERROR_INVALID_PROGRAM)
        NAME(HIPRTC_ERROR_INVALID_OPTION)
        NAME(HIPRTC_ERROR_COMPILATION)
        NAME(HIPRTC_ERROR_BUILTIN_OPERATION_FAILURE)
        NAME(HIPRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION)
        NAME(HIPRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION)
        NAME(HIPRTC_ERROR_NAME_EXPRESSION_NOT_VALID)
        NAME(HIPRTC_ERROR_INTERNAL_ERROR)
        NAME(HIPRTC_ERROR_LINKING)
#undef NAME
    }
    return "unknown result";
}
