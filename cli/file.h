// SPDX-License-Identifier: Apache-2.0
// Files: mapped inputs, and outputs that appear under their own name only when they are whole.
#ifndef CLI_FILE_H
#define CLI_FILE_H

#include "cli.h"

// ---- inputs

typedef struct cli_map {
    char *path;
    const uint8_t *data; // null if the file is empty
    int64_t bytes;
} cli_map;

/** Maps a whole file for reading. Errors: QN_E_NOT_FOUND, QN_E_IO. */
qn_status cli_map_open(cli_map *out, const char *path);
void cli_map_close(cli_map *map);
/** Gives the pages wholly inside [begin, end) back: they will not be read again soon. */
void cli_map_release(const cli_map *map, int64_t begin, int64_t end);

/** path/name, which the caller frees. */
char *cli_path(const char *folder, const char *name);
bool cli_is_folder(const char *path);
bool cli_exists(const char *path);

// ---- outputs
//
// From the first one on, SIGINT, SIGTERM and SIGHUP only set a flag, which writing and committing turn into an
// error, so that the usual clean-up removes what is unfinished.

/** A file in the making, under a temporary name in the folder of its final one. */
typedef struct cli_output {
    char *path, *temp;
    int fd;
    bool may_replace;
} cli_output;

/** Whether path (null: none is wanted) could be started now, for commands whose work comes before it. Errors:
 *  as cli_output_open. */
qn_status cli_output_check(const char *path, bool force);
/** Starts a file of `bytes` bytes (0: not known yet). Reserves the space where the file system can, so that
 *  a full disk is found out early. Errors: QN_E_INVALID (path exists, force is false), QN_E_IO. */
qn_status cli_output_open(cli_output *out, const char *path, int64_t bytes, bool force);
/** Errors: QN_E_IO, also after SIGINT, SIGTERM or SIGHUP. */
qn_status cli_output_write(cli_output *out, const void *data, int64_t bytes, int64_t offset);
/** Syncs the file and gives it its name. On failure nothing is left, as after discard. */
qn_status cli_output_commit(cli_output *out);
/** Removes what is there. Does nothing after commit. */
void cli_output_discard(cli_output *out);

/** A folder in the making: files are put into `temp`. */
typedef struct cli_folder {
    char *path, *temp;
    bool may_replace;
} cli_folder;

/** Errors: QN_E_INVALID (path exists and force is false, or is a folder that holds no checkpoint), QN_E_IO. */
qn_status cli_folder_open(cli_folder *out, const char *path, bool force);
qn_status cli_folder_commit(cli_folder *folder);
void cli_folder_discard(cli_folder *folder);

/** Copies a file's contents. Errors: QN_E_IO. */
qn_status cli_copy_file(const char *from, const char *to);
/** Writes text to a file. Errors: as cli_output_open. */
qn_status cli_write_text(const char *path, const char *text, bool force);

/** Errors: QN_E_IO if a signal has come since the first output was opened. */
qn_status cli_check_signals(void);

#endif
