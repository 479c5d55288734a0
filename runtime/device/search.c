// SPDX-License-Identifier: Apache-2.0
// Where a GPU's driver library is looked for, and in which order.
#include "search.h"

#include "../runtime.h"

#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { IN_PROCESS = 1, IN_LOADERS_PATH = 2 };

/** Goes through the places. `visit` gets what names a place, the library's path or name, and one of
 *  the flags above or 0, and returns whether the search ends there. */
typedef struct walk {
    const qni_search *search;
    bool (*visit)(void *context, const char *where, const char *path, int flags);
    void *context;
} walk;

static bool visit_names(const walk *w, const char *where, int flags) {
    for (const char *const *name = w->search->names; *name; name++)
        if (w->visit(w->context, where, *name, flags))
            return true;
    return false;
}

/** Visits the best library of a folder; without one, its first name, which is not there. */
static bool visit_folder(const walk *w, const char *where, const char *folder) {
    char path[QNI_PATH_BYTES];
    const char *const *name = w->search->names;
    do
        snprintf(path, sizeof path, "%s/%s", folder, *name++);
    while (*name && access(path, F_OK) != 0);
    if (access(path, F_OK) != 0)
        snprintf(path, sizeof path, "%s/%s", folder, w->search->names[0]);
    return w->visit(w->context, where, path, 0);
}

/** Orders names by the numbers in them, the highest first: rocm-7.10 before rocm-7.9. */
static int newest_first(const void *a, const void *b) {
    return strverscmp(*(char *const *)b, *(char *const *)a);
}

/** Visits what a pattern stands for, the newest version first. */
static bool visit_pattern(const walk *w, const qni_folder *f) {
    char pattern[QNI_PATH_BYTES];
    glob_t found = {};
    bool ends = false;
    snprintf(pattern, sizeof pattern, "%s%s", f->base, f->pattern);
    if (!strchr(pattern, '*'))
        return visit_folder(w, f->where, pattern);
    if (glob(pattern, 0, nullptr, &found) == 0) {
        qsort(found.gl_pathv, found.gl_pathc, sizeof *found.gl_pathv, newest_first);
        for (size_t i = 0; i < found.gl_pathc && !ends; i++)
            ends = visit_folder(w, f->where, found.gl_pathv[i]);
    } else
        ends = visit_folder(w, f->where, pattern);
    globfree(&found);
    return ends;
}

static void walk_places(const walk *w) {
    const qni_search *s = w->search;
    if (*s->chosen) {
        w->visit(w->context, s->variable, s->chosen, 0);
        return;
    }
    bool ends = visit_names(w, "this process", IN_PROCESS);
    for (const qni_folder *f = s->folders; f->where && !ends; f++)
        ends = *f->base && visit_pattern(w, f);
    if (!ends)
        visit_names(w, "the loader's path", IN_LOADERS_PATH);
}

// ---- the drivers that were opened

/** Where the search of a kind ended. Once loaded, a driver is also found in the process, by its
 *  library's own name, so that a list has to know where it came from. */
typedef struct origin {
    const qni_search *search;
    char where[48], path[QNI_PATH_BYTES];
} origin;

static origin origins[2]; // hip, cuda; those of null are not opened yet
static pthread_mutex_t origins_lock = PTHREAD_MUTEX_INITIALIZER;

static void remember(const qni_search *search, const char *where, const char *path) {
    pthread_mutex_lock(&origins_lock);
    origin *o = origins;
    while (o->search && o->search != search)
        o++;
    o->search = search;
    snprintf(o->where, sizeof o->where, "%s", where);
    snprintf(o->path, sizeof o->path, "%s", path);
    pthread_mutex_unlock(&origins_lock);
}

/** Returns what is known of a search; an origin without a search if it has not ended well. */
static origin recall(const qni_search *search) {
    origin found = {};
    pthread_mutex_lock(&origins_lock);
    for (size_t i = 0; i < sizeof origins / sizeof *origins; i++)
        if (origins[i].search == search)
            found = origins[i];
    pthread_mutex_unlock(&origins_lock);
    return found;
}

// ---- opening

typedef struct opened {
    const qni_search *search;
    void *handle;
    char *path;
    qn_status st; // of a library that cannot be loaded
} opened;

static bool open_place(void *context, const char *where, const char *path, int flags) {
    opened *o = context;
    const bool is_chosen = *o->search->chosen;
    if (!flags && !is_chosen && access(path, F_OK) != 0)
        return false;
    errno = 0;
    o->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | (flags == IN_PROCESS ? RTLD_NOLOAD : 0));
    const int error = errno;
    if (o->handle) {
        snprintf(o->path, QNI_PATH_BYTES, "%s", path);
        remember(o->search, where, path);
        return true;
    }
    const char *why = dlerror();
    const bool is_memory =
        error == ENOMEM || (flags != IN_PROCESS && (!why || strstr(why, "memory")));
    // Of a name that the loader does not find it says so; else it says what another file lacks.
    const bool is_absent =
        flags == IN_PROCESS || (flags && why && strncmp(why, path, strlen(path)) == 0);
    if (is_memory || !is_absent)
        o->st = QN_FAIL(is_memory ? QN_E_MEMORY : QN_E_NOT_FOUND, "%s: %s: %s%s", o->search->kind,
                        where, is_memory ? "out of memory: " : "", why ? why : path);
    return o->st != QN_OK;
}

qn_status qni_search_open(const qni_search *search, void **handle, char path[QNI_PATH_BYTES]) {
    opened o = {.search = search, .path = path};
    walk_places(&(walk){.search = search, .visit = open_place, .context = &o});
    *handle = o.handle;
    if (o.st != QN_OK || o.handle)
        return o.st;
    return QN_FAIL(QN_E_NOT_FOUND,
                   "%s: no driver: found no %s; %s, or set %s (quern devices --verbose tells where "
                   "it was looked for)",
                   search->kind, search->names[0], search->remedy, search->variable);
}

// ---- listing

typedef struct listing {
    const qni_search *search;
    void (*visit)(void *context, const qn_driver_place *place);
    void *context;
    origin origin;
    bool has_used; // the search would have ended
} listing;

/** Returns why a library is not the one to take, or null. */
static const char *load_fault(const listing *l, const char *where, const char *path, int flags) {
    const origin *o = &l->origin;
    if (flags == IN_PROCESS && o->search && (strcmp(o->where, where) || strcmp(o->path, path)))
        return "not loaded"; // but by this library, from elsewhere
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | (flags == IN_PROCESS ? RTLD_NOLOAD : 0));
    const char *why = handle ? nullptr : dlerror();
    if (handle)
        dlclose(handle);
    return handle ? nullptr : why ? why : "not loaded";
}

static bool list_place(void *context, const char *where, const char *path, int flags) {
    listing *l = context;
    qn_driver_place place = {.struct_size = sizeof place};
    snprintf(place.kind, sizeof place.kind, "%s", l->search->kind);
    snprintf(place.where, sizeof place.where, "%s", where);
    snprintf(place.path, sizeof place.path, "%.*s", (int)sizeof place.path - 1, path);
    const bool is_file = !flags && strchr(path, '/');
    if (is_file && access(path, F_OK) != 0) {
        snprintf(place.found, sizeof place.found, "not there");
    } else if (l->has_used) {
        snprintf(place.found, sizeof place.found, "not looked at");
    } else {
        const char *fault = load_fault(l, where, path, flags);
        const bool is_absent = fault && flags && strncmp(fault, path, strlen(path)) == 0;
        place.is_used = !fault;
        l->has_used = !fault || (flags != IN_PROCESS && !is_absent);
        snprintf(place.found, sizeof place.found, "%.*s", (int)sizeof place.found - 1,
                 !fault                ? "taken"
                 : flags == IN_PROCESS ? "not loaded"
                 : is_absent           ? "not there"
                                       : fault);
    }
    l->visit(l->context, &place);
    return false;
}

void qni_search_list(const qni_search *search,
                     void (*visit)(void *context, const qn_driver_place *place), void *context) {
    listing l = {.search = search, .visit = visit, .context = context, .origin = recall(search)};
    walk_places(&(walk){.search = search, .visit = list_place, .context = &l});
}

// ---- the list of both drivers' places

typedef struct place_list {
    char *places; // null: only count
    size_t room;  // of one
    int32_t capacity, count;
} place_list;

static void add_place(void *context, const qn_driver_place *place) {
    place_list *list = context;
    char *to = list->places ? list->places + (size_t)list->count * list->room : nullptr;
    if (to && list->count < list->capacity) {
        memcpy(to, place, list->room < sizeof *place ? list->room : sizeof *place);
        *(size_t *)to = list->room;
    }
    list->count++;
}

qn_status qn_driver_places(qn_driver_place *places, int32_t *count) {
    if (!count)
        return QN_FAIL(QN_E_INVALID, "driver_places: count is null");
    place_list list = {.places = (char *)places, .capacity = places ? *count : 0};
    if (list.capacity > 0) {
        const qn_status st =
            QNI_CHECK_STRUCT_FROM("driver_places", "places", qn_driver_place, places, kind);
        if (st != QN_OK)
            return st;
        list.room = places->struct_size;
    }
    qni_search_list(qni_hip_search(), add_place, &list);
    qni_search_list(qni_cuda_search(), add_place, &list);
    *count = list.count;
    return QN_OK;
}

bool qni_own_folder(char *folder, size_t room) {
    Dl_info found;
    if (!dladdr((const void *)qni_own_folder, &found) || !found.dli_fname)
        return false;
    const char *slash = strrchr(found.dli_fname, '/');
    const int length = slash ? (int)(slash - found.dli_fname) : 1;
    return snprintf(folder, room, "%.*s", length, slash ? found.dli_fname : ".") < (int)room;
}
