// SPDX-License-Identifier: Apache-2.0
// What the command's files share: errors, options, subcommands, output for people and for programs.
#ifndef CLI_H
#define CLI_H

#include <quern/quern.h>

#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

// ---- errors (error.c)

/** What the shell sees. */
enum { CLI_DONE = 0, CLI_CHECK_FAILED = 1, CLI_BAD_INPUT = 2 };

/** Stores the message and returns the code, for the caller to return at once. Messages name the
 *  file, tensor or option, what was found and what is accepted. */
qn_status cli_fail(qn_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *cli_error(void);
/** Prints the last message after "quern COMMAND: " and returns the exit status that fits the
 *  code. */
int cli_finish(const char *command, qn_status status);

#define CLI_TRY(call)                                                                              \
    do {                                                                                           \
        const qn_status status_of_call = (call);                                                   \
        if (status_of_call != QN_OK)                                                               \
            return status_of_call;                                                                 \
    } while (0)
/** If the call fails, keeps its status in st and goes to the label out, which releases what is
 *  held. */
#define CLI_TRY_OUT(call)                                                                          \
    do {                                                                                           \
        if ((st = (call)) != QN_OK)                                                                \
            goto out;                                                                              \
    } while (0)

/** Writes "; did you mean X?" to buf if the word found is close to a word X of `accepted`, else "".
 *  Commas, bars or blanks part the words of `accepted`. Returns buf. (guess.c) */
const char *cli_guess(const char *found, size_t length, const char *accepted, char *buf,
                      size_t room);
enum { CLI_GUESS_ROOM = 80 };

// ---- options and subcommands (options.c, main.c)

typedef enum cli_kind {
    CLI_FLAG,   // bool *to
    CLI_TEXT,   // const char **to
    CLI_INT,    // int64_t *to, from min to max
    CLI_CHOICE, // const char **to; `value` lists what is accepted: "a|b|c"
    CLI_LIST,   // cli_list *to; may be given several times
} cli_kind;

enum { CLI_LIST_MAX = 256 };

typedef struct cli_list {
    const char *items[CLI_LIST_MAX];
    int count;
} cli_list;

typedef struct cli_option {
    const char *name;  // "--device"
    const char *value; // "SPEC"; null for a flag
    const char *help;
    void *to;
    int64_t min, max;
    cli_kind kind;
} cli_option;

typedef struct cli_command {
    const char *name;
    const char *arguments;     // "IN OUT"; "" for none
    const char *summary;       // one line
    const char *details;       // paragraphs for --help; may be null
    const cli_option *options; // ends with a null name; --help is every command's
    int min_arguments, max_arguments;
    int (*run)(int count, char **arguments);
} cli_command;

extern const cli_command cli_bench, cli_cache, cli_check, cli_convert, cli_devices, cli_doctor,
    cli_gemm, cli_help, cli_probe, cli_profile, cli_quantize, cli_sim, cli_tune;
/** All commands, null-terminated, in the order of the help. */
extern const cli_command *const cli_commands[];

const cli_command *cli_command_find(const char *name);
/** Returns the names of all commands, parted by blanks. */
const char *cli_command_names(void);
/** Reads argv into the command's options and moves its other arguments to the front; *count is
 *  their number. Unknown options and missing or malformed values are errors that name what is
 *  accepted. */
qn_status cli_options_parse(const cli_command *command, int argc, char **argv, int *count,
                            bool *wants_help);
void cli_help_command(FILE *to, const cli_command *command);
void cli_help_all(FILE *to);

// ---- JSON (json.c): a value that cannot be made, also for lack of memory, ends the command

/** Must be called before any other use of jansson. */
void cli_json_begin(void);
/** Makes a value as json_pack does; never null. */
json_t *cli_json_pack(const char *format, ...);
/** Makes a string. Bytes that are no UTF-8, as a path may have, become U+FFFD. */
json_t *cli_json_text(const char *text);
/** Makes a number; null for NaN and infinity, which JSON lacks. */
json_t *cli_json_number(double value);
/** These three take the value over. */
void cli_json_add(json_t *array, json_t *value);
void cli_json_insert(json_t *array, size_t at, json_t *value);
void cli_json_set(json_t *object, const char *name, json_t *value);
/** Returns the text that json_dumps gives, never null; the caller frees it. */
char *cli_json_dump(const json_t *value, size_t flags);
/** Returns the value as text in lines, for people as well, and releases the value. The last line
 *  ends with a newline. The caller frees the text. */
char *cli_json_lines(json_t *value);
/** Prints the lines of cli_json_lines. Errors: QN_E_IO. */
qn_status cli_print_json(json_t *value);

// ---- output (output.c)

/** Writes text to an XML file such as a drawing. Control characters, which XML lacks, become
 *  U+FFFD. */
void cli_write_xml(FILE *to, const char *text);
/** Writes text that others made to a terminal: control characters become \uNNNN. */
void cli_write_plain(FILE *to, const char *text);
/** Prints the text. Errors: as cli_flush. */
qn_status cli_print(const char *text);
/** Flushes stdout. Errors: QN_E_IO, as for a full disk behind a redirection. */
qn_status cli_flush(void);
/** Writes "1.5 GiB" to buf and returns buf. */
const char *cli_bytes_text(int64_t bytes, char *buf, size_t room);
/** Writes "12.3 ms" to buf, "-" for a negative time, and returns buf. */
const char *cli_time_text(int64_t ns, char *buf, size_t room);

/** Returns the monotonic clock's time. */
int64_t cli_now_ns(void);

/** A table whose columns are as wide as their widest cell. Cells are copied. */
typedef struct cli_table {
    char **cells;
    int num_columns;
    int num_cells, room;
} cli_table;

void cli_table_init(cli_table *table, int num_columns, const char *const *titles);
/** Adds one cell; rows are filled from the left. */
void cli_table_add(cli_table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
void cli_table_free(cli_table *table);
/** Prints the table and frees it. */
void cli_table_print(cli_table *table, FILE *to);

/** A progress bar on stderr, shown on a terminal once the work has taken two seconds. */
void cli_progress_begin(const char *label, int64_t total);
void cli_progress_add(int64_t done);
void cli_progress_end(void);

// ---- memory (output.c): the command ends when memory runs out

[[noreturn]] void cli_out_of_memory(void);
/** Opens a stream that writes to *text, which the caller frees after fclose. Unlike open_memstream,
 *  whose callers would have to look at what each fprintf returns, it ends the command when memory
 *  runs out. */
FILE *cli_stream(char **text, size_t *bytes);
void *cli_alloc(size_t bytes);                                                 // zeroed, never null
char *cli_text(const char *format, ...) __attribute__((format(printf, 1, 2))); // caller frees

// ---- the library's devices and errors (device.c)

/** Does what cli_fail does after a failed call of the library; the library's message follows
 *  `what`. */
qn_status cli_fail_lib(qn_status status, const char *what);

typedef struct cli_device {
    qn_device *device;
    qn_stream *stream;
    qn_device_info info;
} cli_device;

qn_status cli_device_open(cli_device *out, const char *spec);
void cli_device_close(cli_device *device);
/** Returns how a device's times come about: "measured", "modelled", or "none" without a clock. */
const char *cli_times(const qn_device_info *info);
json_t *cli_device_json(const qn_device_info *info);

/** A contiguous tensor in device memory, of up to three dimensions. */
typedef struct cli_tensor {
    DLTensor t;
    int64_t shape[4];
} cli_tensor;

/** cli_tensor_make, cli_tensor_free, cli_tensor_load and cli_tensor_store leave the message with
 *  the library. */
qn_status cli_tensor_make(cli_tensor *out, cli_device *device, DLDataType dtype, int ndim,
                          const int64_t *shape);
void cli_tensor_free(cli_tensor *tensor, cli_device *device);
/** Copies from and to host memory of the tensor's shape and dtype; the copy is done when the call
 *  returns. */
qn_status cli_tensor_load(cli_tensor *to, cli_device *device, const void *from);
qn_status cli_tensor_store(void *to, cli_device *device, const cli_tensor *from);

#endif
