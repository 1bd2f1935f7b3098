/* A module that tells of one job's life from a thread of its own, and of everything that must be refused. */
#include <pthread.h>

#include "updraft_seg.h"

static pthread_t thread;

static void *tell(void *nothing)
{
    time_t start = globus_scheduler_event_generator_get_timestamp();
    globus_scheduler_event_pending(start - 1, "too-old");
    globus_scheduler_event_pending(start, "%s%n");
    globus_scheduler_event_active(start + 1, "%s%n");
    globus_scheduler_event_done(start + 2, "%s%n", 7);
    globus_scheduler_event("001;%ld;%s;4;%d", (long) start + 3, "by-text", -2);
    if (globus_scheduler_event_done(start, "a;b", 0) == 0 || globus_scheduler_event_done(start, "", 0) == 0 ||
        globus_scheduler_event_done(start, NULL, 0) == 0 || globus_scheduler_event("%s", "nonsense") == 0) {
        globus_scheduler_event_failed(start + 9, "something was not refused", 1);
    }
    globus_scheduler_event_failed(0, "now", 3);
    return nothing;
}

static int activate(void)
{
    return pthread_create(&thread, NULL, tell, NULL);
}

static int deactivate(void)
{
    return pthread_join(thread, NULL);
}

UPDRAFT_SEG_MODULE("sample", activate, deactivate)
