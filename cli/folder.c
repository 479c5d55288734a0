// SPDX-License-Identifier: Apache-2.0
// Folders that appear whole, with a list of the files that quern put there. Only files on such a
// list may be replaced.
#include "file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

const char cli_list_name[] = "quern-files.json";

enum { MAX_DEPTH = 64 };

// ---- walking

/** What a walk does with a file; `name` is the file's path in the folder. */
typedef qn_status (*visit_fn)(void *context, const char *name);

static qn_status walk(const char *folder, const char *inner, int depth, visit_fn visit,
                      void *context);

static qn_status walk_entry(const char *folder, const char *name, int depth, visit_fn visit,
                            void *context) {
    struct stat info;
    char *path = cli_path(folder, name);
    const qn_status st = lstat(path, &info) != 0  ? cli_fail_path(path, "cannot be read")
                         : !S_ISDIR(info.st_mode) ? visit(context, name)
                         : depth + 1 == MAX_DEPTH
                             ? cli_fail(QN_E_INVALID, "%s: lies too deep", path)
                             : walk(folder, name, depth + 1, visit, context);
    free(path);
    return st;
}

/** Visits every file in a folder and below; `inner` is "" or the path inside the folder that the
 *  walk has reached. */
static qn_status walk(const char *folder, const char *inner, int depth, visit_fn visit,
                      void *context) {
    char *path = *inner ? cli_path(folder, inner) : cli_text("%s", folder);
    DIR *dir = opendir(path);
    qn_status st = dir ? QN_OK : cli_fail_path(path, "cannot be read");
    for (const char *entry; st == QN_OK && (entry = cli_next_entry(dir, path, &st));) {
        char *name = *inner ? cli_path(inner, entry) : cli_text("%s", entry);
        st = walk_entry(folder, name, depth, visit, context);
        free(name);
    }
    if (dir)
        closedir(dir);
    free(path);
    return st;
}

// ---- the list

static qn_status note_name(void *names, const char *name) {
    cli_json_add(names, cli_json_text(name));
    return QN_OK;
}

static qn_status write_list(const char *folder) {
    json_t *names = json_array();
    qn_status st = walk(folder, "", 0, note_name, names);
    json_t *list = cli_json_pack("{s:s, s:o}", "quern", qn_version(), "files", names);
    if (st == QN_OK) {
        char *text = cli_json_dump(list, JSON_INDENT(2)), *path = cli_path(folder, cli_list_name);
        st = cli_write_text(path, text, false);
        free(path);
        free(text);
    }
    json_decref(list);
    return st;
}

/** Returns the names on a folder's list as members of an object, which is empty if there is no
 *  list. */
static json_t *read_list(const char *folder) {
    json_t *names = json_object(), *list = nullptr, *name;
    char *path = cli_path(folder, cli_list_name);
    cli_map map = {0};
    size_t i;
    if (cli_exists(path) && cli_map_open(&map, path) == QN_OK && map.data)
        list = json_loadb((const char *)map.data, (size_t)map.bytes, 0, nullptr);
    cli_map_close(&map);
    free(path);
    json_array_foreach(json_object_get(list, "files"), i, name) if (json_is_string(name))
        cli_json_set(names, json_string_value(name), json_true());
    if (json_object_size(names))
        cli_json_set(names, cli_list_name, json_true());
    json_decref(list);
    return names;
}

typedef struct claim {
    const char *path;
    const json_t *names;
} claim;

static qn_status check_name(void *context, const char *name) {
    const claim *c = context;
    json_t *text = cli_json_text(name);
    const bool is_listed = json_object_get(c->names, json_string_value(text)) != nullptr;
    json_decref(text);
    return is_listed ? QN_OK
                     : cli_fail(QN_E_INVALID,
                                "%s: holds %s, which quern did not write there; --force replaces "
                                "only what quern wrote (%s lists it)",
                                c->path, name, cli_list_name);
}

/** Checks that quern wrote every file in the folder. */
static qn_status check_ours(const char *path) {
    if (!cli_is_folder(path))
        return cli_fail(QN_E_INVALID, "%s: is no folder, and a folder is to be written there",
                        path);
    claim c = {path, read_list(path)};
    const qn_status st = walk(path, "", 0, check_name, &c);
    json_decref((json_t *)(uintptr_t)c.names);
    return st;
}

// ---- the folder

qn_status cli_folder_open(cli_folder *out, const char *path, bool force) {
    *out = (cli_folder){.may_replace = force && cli_exists(path)};
    qn_status st = !force && cli_exists(path) ? cli_fail_exists(path)
                   : out->may_replace         ? check_ours(path)
                                              : QN_OK;
    if (st != QN_OK)
        return st;
    out->path = cli_text("%s", path);
    for (size_t n = strlen(out->path); n > 1 && out->path[n - 1] == '/'; n--)
        out->path[n - 1] = '\0';
    cli_catch_signals();
    out->temp = cli_temp_folder(out->path);
    if (out->temp && chmod(out->temp->path, cli_usual_mode(0777)) == 0)
        return QN_OK;
    st = cli_fail_path(path, "cannot be created");
    cli_folder_discard(out);
    return st;
}

qn_status cli_folder_commit(cli_folder *folder) {
    qn_status st = write_list(folder->temp->path);
    if (st == QN_OK)
        st = cli_check_signals();
    if (st == QN_OK && folder->may_replace)
        st = check_ours(folder->path); // somebody may have used the folder meanwhile
    if (st == QN_OK)
        st = cli_put_in_place(folder->temp->path, folder->path,
                              folder->may_replace ? RENAME_EXCHANGE : RENAME_NOREPLACE);
    // After an exchange the temporary name holds the old folder.
    if (st == QN_OK && !folder->may_replace) {
        cli_temp_forget(folder->temp);
        folder->temp = nullptr;
    }
    cli_folder_discard(folder);
    return st;
}

void cli_folder_discard(cli_folder *folder) {
    cli_temp_remove(folder->temp);
    free(folder->path);
    *folder = (cli_folder){0};
}
