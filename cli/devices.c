// SPDX-License-Identifier: Apache-2.0
// quern devices: lists the devices that can be opened here, in the order in which `auto` takes
// them.
#include "cli.h"

#include <stdlib.h>

static bool as_json, is_verbose;

static const cli_option options[] = {
    {.name = "--json", .kind = CLI_FLAG, .to = &as_json, .help = "print JSON"},
    {.name = "--verbose",
     .kind = CLI_FLAG,
     .to = &is_verbose,
     .help = "also where drivers are looked for, and what is there"},
    {0}};

/** Lists the devices, again with more room if there are more of them by then. */
static qn_status list_devices(qn_device_info **infos, int32_t *count) {
    int32_t room = 0;
    *count = 0;
    do {
        room = *count;
        free(*infos);
        *infos = room ? cli_alloc((size_t)room * sizeof **infos) : nullptr;
        for (int32_t i = 0; i < room; i++)
            (*infos)[i].struct_size = sizeof **infos;
        const qn_status st = qn_device_list(*infos, count);
        if (st != QN_OK)
            return cli_fail_lib(st, "devices");
    } while (*count > room);
    return QN_OK;
}

static qn_status print_table(const qn_device_info *infos, int32_t count) {
    cli_table table;
    cli_table_init(&table, 7,
                   (const char *const[]){"device", "name", "architecture", "units", "memory",
                                         "times", "driver"});
    for (int32_t i = 0; i < count; i++) {
        const qn_device_info *d = &infos[i];
        char memory[32];
        cli_table_add(&table, "%s", d->spec);
        cli_table_add(&table, "%s", d->name);
        cli_table_add(&table, "%s", d->arch);
        cli_table_add(&table, "%d", d->num_compute_units);
        cli_table_add(&table, "%s", cli_bytes_text(d->memory_bytes, memory, sizeof memory));
        cli_table_add(&table, "%s", cli_times(d));
        cli_table_add(&table, "%s", d->driver);
    }
    cli_table_print(&table, stdout);
    return cli_flush();
}

// ---- drivers

/** Lists the places where drivers are looked for; the caller frees them. */
static qn_status list_places(qn_driver_place **places, int32_t *count) {
    int32_t room = 0;
    *count = 0;
    do {
        room = *count;
        free(*places);
        *places = room ? cli_alloc((size_t)room * sizeof **places) : nullptr;
        if (room)
            (*places)->struct_size = sizeof **places;
        const qn_status st = qn_driver_places(*places, count);
        if (st != QN_OK)
            return cli_fail_lib(st, "devices");
    } while (*count > room);
    return QN_OK;
}

static json_t *places_json(const qn_driver_place *places, int32_t count) {
    json_t *list = json_array();
    for (const qn_driver_place *p = places; p < places + count; p++)
        cli_json_add(list, cli_json_pack("{s:s, s:s, s:o, s:o, s:b}", "kind", p->kind, "where",
                                         p->where, "path", cli_json_text(p->path), "found",
                                         cli_json_text(p->found), "used", (int)p->is_used));
    return list;
}

static qn_status print_places(const qn_driver_place *places, int32_t count) {
    cli_table table;
    cli_table_init(&table, 4, (const char *const[]){"driver", "looked for in", "library", "found"});
    for (const qn_driver_place *p = places; p < places + count; p++) {
        cli_table_add(&table, "%s", p->kind);
        cli_table_add(&table, "%s", p->where);
        cli_table_add(&table, "%s", p->path);
        cli_table_add(&table, "%s", p->found);
    }
    putchar('\n');
    cli_table_print(&table, stdout);
    return cli_flush();
}

static int run(int, char **) {
    qn_device_info *infos = nullptr;
    qn_driver_place *places = nullptr;
    int32_t count = 0, num_places = 0;
    qn_status st = list_devices(&infos, &count);
    if (st == QN_OK && is_verbose)
        st = list_places(&places, &num_places);
    if (st == QN_OK && as_json) {
        json_t *list = json_array();
        for (int32_t i = 0; i < count; i++)
            cli_json_add(list, cli_device_json(&infos[i]));
        json_t *all = cli_json_pack("{s:o}", "devices", list);
        if (is_verbose)
            cli_json_set(all, "drivers", places_json(places, num_places));
        st = cli_print_json(all);
    } else if (st == QN_OK) {
        st = print_table(infos, count);
        if (st == QN_OK && is_verbose)
            st = print_places(places, num_places);
    }
    free(places);
    free(infos);
    return cli_finish("devices", st);
}

const cli_command cli_devices = {.name = "devices",
                                 .arguments = "",
                                 .summary = "List every device that can be opened here",
                                 .options = options,
                                 .run = run};
