// SPDX-License-Identifier: Apache-2.0
// quern doctor: one report of cards, drivers, permissions, containers, PyTorch and settings, each
// finding with what mends it. docs/troubleshooting.md goes by the findings' names.
#include "doctor.h"

#include <stdlib.h>
#include <string.h>

static bool as_json, is_verbose;
static const char *root, *spec;

static const cli_option options[] = {
    {.name = "--json", .kind = CLI_FLAG, .to = &as_json, .help = "print JSON"},
    {.name = "--verbose",
     .kind = CLI_FLAG,
     .to = &is_verbose,
     .help = "also the names of the kernels that the devices have"},
    {.name = "--device",
     .value = "SPEC",
     .kind = CLI_TEXT,
     .to = &spec,
     .help = "whose kernels to tell (default: of the CPU and each card)"},
    {.name = "--root",
     .value = "DIR",
     .kind = CLI_TEXT,
     .to = &root,
     .help = "look at the cards and nodes of the system in DIR, and load no driver"},
    {0}};

static const char *const levels[] = {"ok", "note", "trouble"};

void doctor_add(doctor *d, doctor_level level, const char *id, const char *subject,
                const char *remedy, const char *format, ...) {
    char found[512];
    va_list args;
    va_start(args, format);
    vsnprintf(found, sizeof found, format, args);
    va_end(args);
    d->num_troubles += level == DOCTOR_TROUBLE;
    cli_json_add(d->findings,
                 cli_json_pack("{s:s, s:s, s:o, s:o, s:o}", "id", id, "level", levels[level],
                               "subject", cli_json_text(subject), "found", cli_json_text(found),
                               "remedy", cli_json_text(remedy)));
}

const char *doctor_path(const doctor *d, const char *path, char *buf, size_t room) {
    snprintf(buf, room, "%s%s", d->root, path);
    return buf;
}

bool doctor_line(const doctor *d, const char *path, char *line, size_t room) {
    char full[512];
    FILE *file = fopen(doctor_path(d, path, full, sizeof full), "re");
    const bool ok = file && fgets(line, (int)room, file);
    if (file)
        fclose(file);
    if (ok)
        line[strcspn(line, "\n")] = 0;
    return ok;
}

static qn_status print_people(const doctor *d) {
    static const char *const marks[] = {"  ok  ", " note ", "  !!  "};
    size_t i;
    json_t *f;
    json_array_foreach(d->findings, i, f) {
        const char *level = json_string_value(json_object_get(f, "level"));
        const char *remedy = json_string_value(json_object_get(f, "remedy"));
        const char *mark = *level == 'o' ? marks[0] : *level == 'n' ? marks[1] : marks[2];
        printf("%s%s: ", mark, json_string_value(json_object_get(f, "subject")));
        cli_write_plain(stdout, json_string_value(json_object_get(f, "found")));
        if (*remedy)
            printf(" [%s]\n          %s", json_string_value(json_object_get(f, "id")), remedy);
        putchar('\n');
    }
    if (is_verbose)
        doctor_print_kernels(d);
    printf(d->num_troubles ? "%d to mend\n" : "nothing to mend\n", d->num_troubles);
    return cli_flush();
}

static qn_status look(doctor *d) {
    if (root && spec)
        return cli_fail(QN_E_INVALID, "--device %s: with --root no device is opened", spec);
    doctor_cards(d);
    doctor_switches(d);
    if (root)
        return QN_OK;
    doctor_container(d);
    doctor_drivers(d);
    CLI_TRY(doctor_kernels(d, spec));
    doctor_python(d);
    doctor_jit(d);
    return QN_OK;
}

static int run(int, char **) {
    doctor d = {.root = root ? root : "", .findings = json_array(), .kernels = json_array()};
    qn_status st = look(&d);
    if (st == QN_OK)
        st = as_json ? cli_print_json(cli_json_pack("{s:s, s:i, s:O, s:O}", "version", qn_version(),
                                                    "troubles", d.num_troubles, "findings",
                                                    d.findings, "kernels", d.kernels))
                     : print_people(&d);
    json_decref(d.kernels);
    json_decref(d.findings);
    const int status = cli_finish("doctor", st);
    return status == CLI_DONE && d.num_troubles ? CLI_CHECK_FAILED : status;
}

const cli_command cli_doctor = {
    .name = "doctor",
    .arguments = "",
    .summary = "Report what keeps a card or quern from working, and what mends it",
    .details =
        "Looks at the cards on the bus, their drivers and device nodes, the container's limits,\n"
        "environment variables that hurt, driver libraries, the kernels that each device has,\n"
        "PyTorch's wheel, clang and the cache.\n"
        "Exit status: 0 if nothing is to be mended, 1 if something is.",
    .options = options,
    .run = run};
