// SPDX-License-Identifier: Apache-2.0
// What does not need modelled time in a profile's page: instructions by class, and occupancy.
#include "page.h"

#include <string.h>

void page_mix(const page *p) {
    profile_class classes[PROFILE_CLASSES];
    const int64_t all = profile_counter_of(p->kernel, "SQ_INSTS", "insts");
    profile_classes(classes, p->kernel);
    fprintf(
        p->to,
        "<figure class=\"card mix\"><h3>Instructions by class <small>%lld of waves that ran</small></h3>\n"
        "<div class=stack aria-hidden=true>",
        (long long)all);
    for (int i = 0; i < PROFILE_CLASSES; i++)
        if (classes[i].count)
            fprintf(p->to, "<i class=k-class%d style=\"width:%.3f%%\"></i>", i,
                    profile_percent(classes[i].count, all));
    fputs("</div>\n<ul class=legend>", p->to);
    for (int i = 0; i < PROFILE_CLASSES; i++)
        if (classes[i].count)
            fprintf(p->to, "<li class=k-class%d>%s %.1f %%</li>", i, classes[i].name,
                    profile_percent(classes[i].count, all));
    fputs("</ul></figure>\n", p->to);
}

/** Writes the waves that fit by one limit alone. */
static void write_limit(const page *p, const json_t *o, const char *name, int64_t groups) {
    const char *limit = json_string_value(json_object_get(o, "limit"));
    const double own = page_number(o, "workgroups"), most = page_number(o, "max_waves");
    const double waves = own > 0 ? (double)groups * page_number(o, "waves") / own : 0;
    const bool is_limit = strncmp(limit, name, strlen(name)) == 0;
    const char *kind = is_limit ? "limit" : "room";
    fprintf(p->to,
            "<dt class=k-%s>%s</dt><dd><div class=bar><i class=k-%s style=\"width:%.2f%%\"></i>"
            "</div></dd><dd class=value>%.0f%s</dd>\n",
            kind, name, kind, waves < most ? 100 * waves / most : 100, waves,
            is_limit ? ", the limit" : "");
}

void page_occupancy(const page *p) {
    const json_t *o = json_object_get(p->kernel, "occupancy");
    const char *name;
    json_t *groups;
    char lds[32], scratch[32];
    fprintf(
        p->to,
        "<figure class=\"card occupancy\"><h3>Occupancy <small>waves that fit on a compute unit by "
        "each limit alone; %lld of %lld fit</small></h3>\n<dl class=rows>\n",
        (long long)page_integer(o, "waves"), (long long)page_integer(o, "max_waves"));
    json_object_foreach(json_object_get(o, "workgroups_by"), name, groups)
        write_limit(p, o, name, json_integer_value(groups));
    fprintf(p->to,
            "</dl>\n<p class=dim>%lld VGPRs, %lld of them AGPRs; %lld SGPRs; LDS %s; scratch %s a "
            "lane</p></figure>\n",
            (long long)page_integer(p->kernel, "vgprs"),
            (long long)page_integer(p->kernel, "agprs"),
            (long long)page_integer(p->kernel, "sgprs"),
            cli_bytes_text(page_integer(p->kernel, "lds_bytes"), lds, sizeof lds),
            cli_bytes_text(page_integer(p->kernel, "scratch_bytes"), scratch, sizeof scratch));
}
