// SPDX-License-Identifier: Apache-2.0
// The code in a profile's page: source lines and instructions, with what each cost.
#include "../sim/clock.h"
#include "page.h"

#include <stdlib.h>
#include <string.h>

static const char *string(const json_t *object, const char *name) {
    return json_string_value(json_object_get(object, name));
}

/** Writes what an instruction or a line cost as a bar of parts, of which the dearest one's bar is
 *  full; its share; and on what most of it went. */
static void write_cost(const page *p, const json_t *of, int64_t dearest) {
    cli_spent spent[CLI_SPENT];
    const int count = cli_clock_spent(spent, of);
    const int64_t cycles = profile_cycles(of);
    const double length = dearest ? (double)cycles / (double)dearest : 0;
    fputs("<td class=of><div class=bar>", p->to);
    for (int i = 0; i < count; i++)
        fprintf(p->to, "<i class=k-%s style=\"width:%.2f%%\"></i>", spent[i].name,
                spent[i].percent * length);
    fputs("</div></td>", p->to);
    if (count)
        fprintf(p->to, "<td class=n>%.2f %%</td><td>%s</td>",
                profile_percent(cycles, profile_busy_cycles(p->clock)), spent[0].name);
    else
        fputs("<td></td><td></td>", p->to);
}

/** Writes "file.hip:12" without the file's folder. */
static void write_place(FILE *to, const char *file, int64_t line) {
    const char *slash = strrchr(file, '/');
    page_text(to, slash ? slash + 1 : file);
    fprintf(to, ":%lld", (long long)line);
}

// ---- source lines

void page_lines(const page *p) {
    const json_t *lines = json_object_get(p->clock, "lines"), *first = json_array_get(lines, 0);
    size_t i;
    json_t *line;
    fputs(
        "<section class=\"card wide\"><h3>Source lines <small>modelled, of the cycles in which SIMDs "
        "had waves</small></h3>\n",
        p->to);
    if (!lines)
        fputs(
            "<p class=dim>This kernel's code has no line table. The compiler's <code>-g</code> makes "
            "one and does not change the code.</p>",
            p->to);
    else
        fputs("<div class=scroll><table class=lines><tbody>\n", p->to);
    json_array_foreach((json_t *)(uintptr_t)lines, i, line) {
        fputs("<tr data-line=\"", p->to);
        write_place(p->to, string(line, "file"), page_integer(line, "line"));
        fputs("\"><td class=code>", p->to);
        page_text(p->to, string(line, "file"));
        fprintf(p->to, ":%lld</td>", (long long)page_integer(line, "line"));
        write_cost(p, line, profile_cycles(first));
        fputs("</tr>\n", p->to);
    }
    fputs(lines ? "</tbody></table></div></section>\n" : "</section>\n", p->to);
}

// ---- instructions

static void write_instruction(const page *p, const json_t *one, int64_t dearest) {
    const json_t *source = json_object_get(one, "source");
    const int64_t issues = page_integer(one, "issues");
    char place[32];
    fprintf(p->to, "<tr%s data-issues=%lld data-cycles=%lld><td class=at>%s</td><td class=text>",
            issues ? "" : " class=never", (long long)issues, (long long)profile_cycles(one),
            profile_place(p->kernel, one, place, sizeof place));
    page_text(p->to, string(one, "text"));
    fprintf(p->to, "</td><td class=n>%lld</td>", (long long)issues);
    write_cost(p, one, dearest);
    fputs("<td class=dim>", p->to);
    if (source)
        write_place(p->to, string(source, "file"), page_integer(source, "line"));
    fputs("</td></tr>\n", p->to);
}

/** Writes a row with the function that the instructions below it are of, if it is another one. */
static void write_function(const page *p, const json_t *one, const char **before) {
    const char *function = string(one, "function");
    function = function ? function : string(p->kernel, "name");
    if (*before && strcmp(*before, function) == 0)
        return;
    fputs("<tr class=function><td colspan=7>", p->to);
    page_text(p->to, function);
    fputs("</td></tr>\n", p->to);
    *before = function;
}

static void write_controls(FILE *to) {
    fputs(
        "<div class=controls><input type=search placeholder=\"filter: ds_read, wait_vmem, file.hip:12\" "
        "aria-label=\"filter instructions\"><select aria-label=\"which instructions\">"
        "<option value=all>all instructions</option><option value=ran>those that ran</option>"
        "<option value=dearest>the 50 dearest</option></select><output class=dim></output></div>\n",
        to);
}

enum { OPEN = 3 }; // listings that are open: more make a browser slow

void page_instructions(const page *p) {
    const json_t *all = json_object_get(p->clock, "instructions");
    const char *function = nullptr;
    size_t count, i;
    json_t *one;
    const json_t **list = profile_dearest(all, &count);
    const int64_t dearest = count ? profile_cycles(list[0]) : 0;
    free(list);
    fprintf(p->to, "<details class=\"card code-card\"%s><summary>Instructions: %zu</summary>\n",
            p->rank < OPEN ? " open" : "", json_array_size(all));
    write_controls(p->to);
    fputs("<div class=scroll><table class=listing><thead><tr><th data-by=at>Offset</th>"
          "<th>Instruction</th><th class=n data-by=issues>Issues</th><th data-by=cycles colspan=2>"
          "Modelled cycles</th><th>Most of them</th><th>Source</th></tr></thead><tbody>\n",
          p->to);
    json_array_foreach((json_t *)(uintptr_t)all, i, one) {
        write_function(p, one, &function);
        write_instruction(p, one, dearest);
    }
    fputs("</tbody></table></div></details>\n", p->to);
}
