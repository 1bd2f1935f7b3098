/*
 * Modules for `updraft seg`, in C.
 *
 * A module is a shared library libupdraft_seg_NAME.so. `updraft seg -s NAME` finds it as the dynamic loader finds any
 * library; `updraft seg -s ./file.so` takes a path. It holds, once,
 *
 *     UPDRAFT_SEG_MODULE("NAME", activate, deactivate)
 *
 * activate() is called once. It starts a thread or a timer and returns 0, or something else if it cannot start: then
 * the generator ends with exit code 1. deactivate() is called before the generator ends, and only returns when none of
 * the module's threads will make a call any more. Calls made meanwhile return -1.
 *
 * The calls below may be made from any thread, from activate() on. They wait while the reader of the events is slow.
 * All return 0, or -1 when nobody will see the event: the generator ends, the module is not activated yet, or the event
 * cannot be told (an id that is empty or holds ';' or a newline). Events before the start time are accepted and dropped.
 *
 * A time of 0 means now. Nothing a module passes is used as a format by the generator. globus_scheduler_event() formats
 * in the module: pass text that is not yours as an argument of "%s", never as the format.
 */
#ifndef UPDRAFT_SEG_H
#define UPDRAFT_SEG_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

#define UPDRAFT_SEG_ABI 1

/* Longest text of globus_scheduler_event(). */
#define UPDRAFT_SEG_TEXT 8192

/* What the generator gives to a module. Use the calls below instead. */
typedef struct updraft_seg_host {
    int abi;
    const void *context;
    int (*text)(const void *context, const char *text, size_t length);
    int (*state)(const void *context, int64_t stamp, const char *job, int state, int code);
    int64_t (*start)(const void *context);
} updraft_seg_host;

/* What a module gives to the generator. */
typedef struct updraft_seg_module {
    int abi;
    const char *name;
    const updraft_seg_host **host;
    int (*activate)(void);
    int (*deactivate)(void);
} updraft_seg_module;

extern const updraft_seg_host *updraft_seg_the_host;
extern const updraft_seg_module *globus_scheduler_event_module_ptr;

#define UPDRAFT_SEG_MODULE(name, activate, deactivate)                                              \
    const updraft_seg_host *updraft_seg_the_host = NULL;                                            \
    static const updraft_seg_module updraft_seg_this_module = {                                     \
        UPDRAFT_SEG_ABI, name, &updraft_seg_the_host, activate, deactivate};                        \
    const updraft_seg_module *globus_scheduler_event_module_ptr = &updraft_seg_this_module;

/*
 * Tells a whole message, made as printf makes it: "001;TIME;JOB;STATE;CODE", or any other "NNN;TIME;..." of three digits,
 * a time and whatever readers of that kind of message know, which is passed on as it is. Several messages are separated by
 * newlines; either all of them are told or, with -1, none.
 */
static inline int globus_scheduler_event(const char *format, ...)
{
    char text[UPDRAFT_SEG_TEXT];
    va_list arguments;
    int length;
    if (updraft_seg_the_host == NULL) {
        return -1;
    }
    va_start(arguments, format);
    length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t) length >= sizeof text) {
        return -1;
    }
    return updraft_seg_the_host->text(updraft_seg_the_host->context, text, (size_t) length);
}

/* The job waits. */
static inline int globus_scheduler_event_pending(time_t stamp, const char *job)
{
    if (updraft_seg_the_host == NULL) {
        return -1;
    }
    return updraft_seg_the_host->state(updraft_seg_the_host->context, (int64_t) stamp, job, 1, 0);
}

/* The job runs. */
static inline int globus_scheduler_event_active(time_t stamp, const char *job)
{
    if (updraft_seg_the_host == NULL) {
        return -1;
    }
    return updraft_seg_the_host->state(updraft_seg_the_host->context, (int64_t) stamp, job, 2, 0);
}

/* The job was cancelled or could not run. */
static inline int globus_scheduler_event_failed(time_t stamp, const char *job, int code)
{
    if (updraft_seg_the_host == NULL) {
        return -1;
    }
    return updraft_seg_the_host->state(updraft_seg_the_host->context, (int64_t) stamp, job, 4, code);
}

/* The job ran to its end. */
static inline int globus_scheduler_event_done(time_t stamp, const char *job, int code)
{
    if (updraft_seg_the_host == NULL) {
        return -1;
    }
    return updraft_seg_the_host->state(updraft_seg_the_host->context, (int64_t) stamp, job, 8, code);
}

/* The time from which on events are wanted; -1 before the module is loaded. */
static inline time_t globus_scheduler_event_generator_get_timestamp(void)
{
    if (updraft_seg_the_host == NULL) {
        return (time_t) -1;
    }
    return (time_t) updraft_seg_the_host->start(updraft_seg_the_host->context);
}

#ifdef __cplusplus
}
#endif

#endif
