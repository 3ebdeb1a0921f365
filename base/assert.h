// ASSERT: a condition that only our own bug can break. On in release; one condition each, no side effects.
// Never reachable from a byte of a file or a peer.
#ifndef HEARTH_BASE_ASSERT_H
#define HEARTH_BASE_ASSERT_H

#define ASSERT(x) ((x) ? (void)0 : assert_fail(#x, __FILE__, __LINE__))

// ASSERT_HOT is for inner loops: on only with DEBUG=1.
#ifdef HEARTH_DEBUG
#define ASSERT_HOT(x) ASSERT(x)
#else
#define ASSERT_HOT(x) ((void)0)
#endif

// assert_fail prints the condition and where it stands, and aborts.
_Noreturn void assert_fail(const char *what, const char *file, int line);

#endif
