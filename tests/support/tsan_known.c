// What ThreadSanitizer may not report. It sees the locks of an uninstrumented library but not its atomics; NNG frees a dialer
// when a reference count (lock xadd) reaches zero, so the mutex destroyed by one thread looks as if another still held it.
// Our own code destroys mutexes in loop_close and the thread pool only, where a race would be a use after free for ASan to find.

const char *__tsan_default_suppressions(void);

// Called by the sanitizer's run-time library at start, by nobody otherwise.
const char *__tsan_default_suppressions(void)
{
	return "race:pthread_mutex_destroy\n";
}
