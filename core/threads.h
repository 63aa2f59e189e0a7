/* Threads, locks and the clock of the system the native library runs on: POSIX or Windows. */
#ifndef EDGEWISE_THREADS_H
#define EDGEWISE_THREADS_H

#if defined(_WIN32)
#  define WIN32_LEAN_AND_MEAN
#  define NOMINMAX
#  include <process.h>
#  include <stdint.h>
#  include <windows.h>

typedef SRWLOCK ew_mutex;
typedef CONDITION_VARIABLE ew_condition;
typedef HANDLE ew_thread;
#  define EW_THREAD_MAIN(name, argument) static unsigned __stdcall name(void *argument)
#  define EW_THREAD_RESULT 0

static inline void ew_mutex_open(ew_mutex *m) { InitializeSRWLock(m); }
static inline void ew_mutex_close(ew_mutex *m) { (void)m; }
static inline void ew_mutex_lock(ew_mutex *m) { AcquireSRWLockExclusive(m); }
static inline void ew_mutex_unlock(ew_mutex *m) { ReleaseSRWLockExclusive(m); }
static inline void ew_condition_open(ew_condition *c) { InitializeConditionVariable(c); }
static inline void ew_condition_close(ew_condition *c) { (void)c; }
static inline void ew_condition_wait(ew_condition *c, ew_mutex *m) {
  SleepConditionVariableSRW(c, m, INFINITE, 0);
}
static inline void ew_condition_wake_all(ew_condition *c) { WakeAllConditionVariable(c); }

/* Returns nonzero if no thread could be started. */
static inline int ew_thread_start(ew_thread *t, unsigned(__stdcall *main)(void *), void *argument) {
  *t = (HANDLE)_beginthreadex(NULL, 0, main, argument, 0, NULL);
  return !*t;
}
static inline void ew_thread_join(ew_thread t) {
  WaitForSingleObject(t, INFINITE);
  CloseHandle(t);
}

/* Seconds since an arbitrary point, never going backwards. */
static inline double ew_clock(void) {
  LARGE_INTEGER count, rate;
  QueryPerformanceCounter(&count);
  QueryPerformanceFrequency(&rate);
  return (double)count.QuadPart / (double)rate.QuadPart;
}

#else
#  include <pthread.h>
#  include <time.h>

typedef pthread_mutex_t ew_mutex;
typedef pthread_cond_t ew_condition;
typedef pthread_t ew_thread;
#  define EW_THREAD_MAIN(name, argument) static void *name(void *argument)
#  define EW_THREAD_RESULT NULL

static inline void ew_mutex_open(ew_mutex *m) { pthread_mutex_init(m, NULL); }
static inline void ew_mutex_close(ew_mutex *m) { pthread_mutex_destroy(m); }
static inline void ew_mutex_lock(ew_mutex *m) { pthread_mutex_lock(m); }
static inline void ew_mutex_unlock(ew_mutex *m) { pthread_mutex_unlock(m); }
static inline void ew_condition_open(ew_condition *c) { pthread_cond_init(c, NULL); }
static inline void ew_condition_close(ew_condition *c) { pthread_cond_destroy(c); }
static inline void ew_condition_wait(ew_condition *c, ew_mutex *m) { pthread_cond_wait(c, m); }
static inline void ew_condition_wake_all(ew_condition *c) { pthread_cond_broadcast(c); }

/* Returns nonzero if no thread could be started. */
static inline int ew_thread_start(ew_thread *t, void *(*main)(void *), void *argument) {
  return pthread_create(t, NULL, main, argument);
}
static inline void ew_thread_join(ew_thread t) { pthread_join(t, NULL); }

/* Seconds since an arbitrary point, never going backwards. */
static inline double ew_clock(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
#endif
#endif
