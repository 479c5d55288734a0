// SPDX-License-Identifier: Apache-2.0
// Files: mapped inputs, temporary ones, and outputs that appear under their own name only when they
// are whole.
#ifndef CLI_FILE_H
#define CLI_FILE_H

#include "cli.h"

#include <dirent.h>
#include <sys/types.h>

// ---- inputs (map.c)

typedef struct cli_map {
    char *path;
    const uint8_t *data; // null if the file is empty
    int64_t bytes;
    struct cli_source *source; // what is remembered of the file
} cli_map;

/** Maps a whole file for reading. If it is cut short later, what is missing reads as zeros and the
 *  checks below fail. Errors: QN_E_NOT_FOUND, QN_E_IO. */
qn_status cli_map_open(cli_map *out, const char *path);
void cli_map_close(cli_map *map);
/** Gives the pages wholly inside [begin, end) back: they will not be read again soon. */
void cli_map_release(const cli_map *map, int64_t begin, int64_t end);

/** Whether every page that was read was there, for often; and whether all mapped files are as they
 *  were when opened, before anything that depends on them gets its name. Errors: QN_E_IO. */
qn_status cli_check_pages(void);
qn_status cli_check_inputs(void);

/** The message for errno after something was tried with a file. */
qn_status cli_fail_path(const char *path, const char *action);
/** path/name, which the caller frees. */
char *cli_path(const char *folder, const char *name);
/** The path without links, which the caller frees; null if there is nothing. */
char *cli_real_path(const char *path);
bool cli_is_folder(const char *path);
/** The name of the folder's next entry but "." and ".."; null at its end, or with *st where it
 *  cannot be read on. */
const char *cli_next_entry(DIR *folder, const char *path, qn_status *st);
bool cli_exists(const char *path);

// ---- temporary files and folders (temp.c)

typedef struct cli_temp {
    char *path;
    int fd; // a file's, open for writing; or a folder's
    struct cli_temp *next;
} cli_temp;

/** Beside path, under a name made from it. Removed when the process exits, if not before; what a
 *  killed process left of the same path is removed first, with a line on stderr. Null, with errno,
 *  if it cannot be made. */
cli_temp *cli_temp_file(const char *path);
cli_temp *cli_temp_folder(const char *path);
/** Ends it, with all that is in a folder. Does nothing with null. */
void cli_temp_remove(cli_temp *temp);
/** Ends it and leaves what is there: it has another name now. */
void cli_temp_forget(cli_temp *temp);

// ---- outputs (file.c)
//
// From the first one on, SIGINT, SIGTERM and SIGHUP only set a flag, which writing and committing
// turn into an error, so that the usual clean-up removes what is unfinished.

/** A file in the making, under a temporary name in the folder of its final one. */
typedef struct cli_output {
    char *path;
    cli_temp *temp;
    bool may_replace;
} cli_output;

/** Whether path (null: none is wanted) could be started now, for commands whose work comes before
 *  it. Errors: as cli_output_open. */
qn_status cli_output_check(const char *path, bool force);
/** Starts a file of `bytes` bytes (0: not known yet). Reserves the space where the file system can,
 *  so that a full disk is found out early. Errors: QN_E_INVALID (path exists, force is false),
 *  QN_E_IO. */
qn_status cli_output_open(cli_output *out, const char *path, int64_t bytes, bool force);
/** Errors: QN_E_IO, also after SIGINT, SIGTERM or SIGHUP. */
qn_status cli_output_write(cli_output *out, const void *data, int64_t bytes, int64_t offset);
/** Syncs the file and gives it its name. On failure nothing is left, as after discard. */
qn_status cli_output_commit(cli_output *out);
/** Removes what is there. Does nothing after commit. */
void cli_output_discard(cli_output *out);

/** Copies a file's contents. Errors: QN_E_IO. */
qn_status cli_copy_file(const char *from, const char *to);
/** Starts a file and writes text to it. Errors: as cli_output_open. */
qn_status cli_output_text(cli_output *out, const char *path, const char *text, bool force);
/** Writes text to a file. Errors: as cli_output_open. */
qn_status cli_write_text(const char *path, const char *text, bool force);

/** From now on the three signals only set a flag. */
void cli_catch_signals(void);
/** Errors: QN_E_IO if such a signal has come, or as of cli_check_pages. */
qn_status cli_check_signals(void);
/** The message that path is there already. */
qn_status cli_fail_exists(const char *path);
/** Gives temp its final name, by renameat2's flags. Errors: QN_E_INVALID (path exists), QN_E_IO. */
qn_status cli_put_in_place(const char *temp, const char *path, unsigned flags);
/** A temporary file is for the user alone; a result has the mode that any other file gets. */
mode_t cli_usual_mode(mode_t all);

// ---- folders (folder.c)

/** The file in which a folder lists those that quern put there. */
extern const char cli_list_name[];

/** A folder in the making: files are put into `temp`. */
typedef struct cli_folder {
    char *path;
    cli_temp *temp;
    bool may_replace;
} cli_folder;

/** Errors: QN_E_INVALID (path exists and force is false, or holds what quern did not write),
 *  QN_E_IO. */
qn_status cli_folder_open(cli_folder *out, const char *path, bool force);
/** Adds the list of files, and gives the folder its name. */
qn_status cli_folder_commit(cli_folder *folder);
void cli_folder_discard(cli_folder *folder);

#endif
