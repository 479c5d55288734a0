// SPDX-License-Identifier: Apache-2.0
// Makes one timeline of those of a program's processes: the trace's processes get numbers of their
// own. The simulated GPU writes an event a line, which begins with its process.
#include "../file.h"
#include "profile.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char head[] = "{\"pid\":";
enum { STRIDE = 1 << 16 }; // more than the trace's processes of one of the program's

/** Writes an event, without the comma behind it, if the line holds a whole one. Returns whether it
 *  did. */
static bool write_event(FILE *to, const char *line, size_t length, int process, const char *comma) {
    const size_t first = sizeof head - 1;
    length -= length && line[length - 1] == ',';
    if (length <= first || memcmp(line, head, first) != 0 || line[length - 1] != '}')
        return false;
    const size_t digits = strspn(line + first, "0123456789");
    fprintf(to, "%s%s%ld", comma, head, strtol(line + first, nullptr, 10) + (long)STRIDE * process);
    fwrite(line + first + digits, 1, length - first - digits, to);
    return true;
}

/** Writes the events of a file. The last line of a process that was killed may be cut. */
static void write_file(FILE *to, const cli_map *map, int process, const char **comma) {
    const char *at = (const char *)map->data, *end = at ? at + map->bytes : nullptr;
    for (const char *next; at && at < end; at = next + 1) {
        next = memchr(at, '\n', (size_t)(end - at));
        if (!next)
            return;
        if (write_event(to, at, (size_t)(next - at), process, *comma))
            *comma = ",\n";
    }
}

char *profile_timeline(const char *folder) {
    char *text = nullptr;
    const char *comma = "";
    size_t bytes;
    int processes = 0;
    FILE *to = cli_stream(&text, &bytes);
    DIR *dir = opendir(folder);
    if (!dir && errno == ENOMEM)
        cli_out_of_memory();
    fputs("[\n", to);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        const char *dot = strrchr(entry->d_name, '.');
        char *path = cli_path(folder, entry->d_name);
        cli_map map = {0};
        if (dot && strcmp(dot, PROFILE_TIMELINE) == 0 && profile_map(&map, path))
            write_file(to, &map, processes++, &comma);
        cli_map_close(&map);
        free(path);
    }
    fputs("\n]\n", to);
    if (dir)
        closedir(dir);
    fclose(to);
    return text;
}
