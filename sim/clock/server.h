// SPDX-License-Identifier: Apache-2.0
// A part of the chip that serves one request at a time: a channel, the fabric.
//
// Requests are booked in the order of the instructions that make them, which is not the order in
// which they come to the part: one that has waited for another part comes later than others that
// are booked after it. So time is divided into windows, and a request takes the first one from its
// own moment on that has time left. In a window, requests are served as they are booked.
#ifndef SIM_SERVER_H
#define SIM_SERVER_H

#include <stdint.h>

enum { SIM_WINDOWS = 512 }; // that a server remembers
constexpr uint64_t SIM_WINDOW_TICKS = 1024;

typedef struct sim_window {
    uint64_t number; // which of all it is: it begins at number * SIM_WINDOW_TICKS
    uint64_t used;   // units
    uint64_t last;   // end of what was booked last, in units
    uint64_t next;   // windows from here to that number have no time left; 0: not known
} sim_window;

/** All of it is zero when it begins. */
typedef struct sim_server {
    sim_window windows[SIM_WINDOWS];
    uint64_t end; // of all that is booked, in units
} sim_server;

/** Books a request that comes at a tick and takes `units`, of which a tick has `per_tick`. Returns
 *  the tick at which its service begins. */
uint64_t sim_serve(sim_server *server, uint64_t at, uint64_t units, uint64_t per_tick);

#endif
