/* Modules that are built by the tests with one of these defined, each wrong or unusual in its own way. */
#include <stdlib.h>
#include <unistd.h>

#include "updraft_seg.h"

#ifdef UNBOUND
int there_is_no_such_function(void);
#endif

#ifdef EARLY
/* Runs while the library is loaded, long before it is activated. */
static int early = 0;
__attribute__((constructor)) static void too_early(void)
{
    early = globus_scheduler_event_pending(5, "early") == -1 && globus_scheduler_event_active(5, "early") == -1 &&
            globus_scheduler_event_failed(5, "early", 0) == -1 && globus_scheduler_event_done(5, "early", 0) == -1 &&
            globus_scheduler_event("001;5;early;1;0") == -1 &&
            globus_scheduler_event_generator_get_timestamp() == (time_t) -1;
}
#endif

static int activate(void)
{
#ifdef EARLY
    return globus_scheduler_event_done(7, "after", early);
#elif defined(MESSAGES)
    int refused = globus_scheduler_event("002;8;good\n003;x;bad") == -1 && globus_scheduler_event("x") == -1 &&
                  globus_scheduler_event("001;8;a;3;0") == -1 && globus_scheduler_event("002;8;good\n\n002;8;good") == -1 &&
                  globus_scheduler_event("001;8;a;1;0\n001;8;;1;0") == -1;
    return globus_scheduler_event("002;8;anything; of mine\n001;9;a;1;0\n777;6;too old\n001;10;a;8;3\n") ||
           globus_scheduler_event_done(11, "refused", refused);
#elif defined(UNBOUND)
    return there_is_no_such_function();
#elif defined(REFUSES)
    return 42;
#elif defined(HANGS)
    for (;;) {
        sleep(1);
    }
#else
    return 0;
#endif
}

static int deactivate(void)
{
    return 0;
}

#ifdef NO_ACTIVATE
UPDRAFT_SEG_MODULE("odd", NULL, deactivate)
#elif defined(NO_DEACTIVATE)
UPDRAFT_SEG_MODULE("odd", activate, NULL)
#elif defined(NO_NAME)
UPDRAFT_SEG_MODULE(NULL, activate, deactivate)
#else
UPDRAFT_SEG_MODULE("odd", activate, deactivate)
#endif
