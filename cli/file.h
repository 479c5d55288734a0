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

/** Maps a whole file for reading. If the file is cut short later, its missing part reads as zeros
 *  and the checks below fail. Errors: QN_E_NOT_FOUND, QN_E_IO. */
qn_status cli_map_open(cli_map *out, const char *path);
void cli_map_close(cli_map *map);
/** Releases the pages wholly inside [begin, end), which will not be read again soon. */
void cli_map_release(const cli_map *map, int64_t begin, int64_t end);

/** cli_check_pages checks that every page that was read existed; it is cheap, so call it often.
 *  cli_check_inputs checks that all mapped files are as they were when opened; call it before
 *  anything that depends on them gets its name. Errors: QN_E_IO. */
qn_status cli_check_pages(void);
qn_status cli_check_inputs(void);

/** Fails with the message for errno after something was tried with a file. */
qn_status cli_fail_path(const char *path, const char *action);
/** Returns path/name, which the caller frees. */
char *cli_path(const char *folder, const char *name);
/** Returns the path without links, which the caller frees; null if there is no such file. */
char *cli_real_path(const char *path);
bool cli_is_folder(const char *path);
/** Returns the name of the folder's next entry but "." and ".."; null at the folder's end, or with
 *  *st set if the folder cannot be read on. */
const char *cli_next_entry(DIR *folder, const char *path, qn_status *st);
bool cli_exists(const char *path);

// ---- temporary files and folders (temp.c)

typedef struct cli_temp {
    char *path;
    int fd; // the file's, open for writing, or the folder's
    struct cli_temp *next;
} cli_temp;

/** Makes a temporary file or folder beside path, under a name made from path. It is removed when
 *  the process exits, if not before. First removes, with a line on stderr, what a killed process
 *  left for this path. Returns null, with errno, if it cannot be made. */
cli_temp *cli_temp_file(const char *path);
cli_temp *cli_temp_folder(const char *path);
/** Removes the temporary file, or the folder with all that it holds. Does nothing with null. */
void cli_temp_remove(cli_temp *temp);
/** Forgets the file or folder and leaves it where it is: it has another name now. */
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

/** Checks that an output at path could be started now (null: none is wanted), for commands that
 *  work before they start it. Errors: those of cli_output_open. */
qn_status cli_output_check(const char *path, bool force);
/** Starts a file of `bytes` bytes (0: not known yet). Reserves the space if the file system can, so
 *  that a full disk is found out early. Errors: QN_E_INVALID (path exists, force is false),
 *  QN_E_IO. */
qn_status cli_output_open(cli_output *out, const char *path, int64_t bytes, bool force);
/** Writes part of the file. Errors: QN_E_IO, also after SIGINT, SIGTERM or SIGHUP. */
qn_status cli_output_write(cli_output *out, const void *data, int64_t bytes, int64_t offset);
/** Syncs the file and gives it its name. On failure nothing is left, as after
 *  cli_output_discard. */
qn_status cli_output_commit(cli_output *out);
/** Removes the unfinished file. Does nothing after cli_output_commit. */
void cli_output_discard(cli_output *out);

/** Copies a file's contents. Errors: QN_E_IO. */
qn_status cli_copy_file(const char *from, const char *to);
/** Starts a file and writes text to it. Errors: those of cli_output_open. */
qn_status cli_output_text(cli_output *out, const char *path, const char *text, bool force);
/** Writes text to a file. Errors: those of cli_output_open. */
qn_status cli_write_text(const char *path, const char *text, bool force);

/** Makes the three signals only set a flag from now on. */
void cli_catch_signals(void);
/** Checks that no such signal has come. Errors: QN_E_IO, also those of cli_check_pages. */
qn_status cli_check_signals(void);
/** Fails with the message that path exists already. */
qn_status cli_fail_exists(const char *path);
/** Gives temp its final name, by renameat2's flags. Errors: QN_E_INVALID (path exists), QN_E_IO. */
qn_status cli_put_in_place(const char *temp, const char *path, unsigned flags);
/** Returns the mode that a usual new file gets. Temporary files are for the user alone; results get
 *  this mode. */
mode_t cli_usual_mode(mode_t all);

// ---- folders (folder.c)

/** The name of the file in which a folder lists the files that quern put there. */
extern const char cli_list_name[];

/** A folder in the making; its files are put into `temp`. */
typedef struct cli_folder {
    char *path;
    cli_temp *temp;
    bool may_replace;
} cli_folder;

/** Starts a folder. Errors: QN_E_INVALID (path exists and force is false, or holds files that quern
 *  did not write), QN_E_IO. */
qn_status cli_folder_open(cli_folder *out, const char *path, bool force);
/** Adds the list of files, and gives the folder its name. */
qn_status cli_folder_commit(cli_folder *folder);
void cli_folder_discard(cli_folder *folder);

#endif
