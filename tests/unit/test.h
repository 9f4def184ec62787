/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Unit tests register themselves and run each in a process of its own, so that a crash is one red
 * line. Not Criterion: it is not packaged for every system that `./bootstrap test` must pass on.
 *
 *	TEST(buf, grows) { struct buf b = {0}; … CHECK(b.len == 3); CHECK_STR(s, "abc"); }
 *
 * A test that cannot run here ends with SKIP() or NEEDS(); a plain return would count as passed.
 */
#ifndef SONDE_TESTS_UNIT_TEST_H
#define SONDE_TESTS_UNIT_TEST_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether the thread sanitizer is in the program. */
#define TEST_TSAN 0
#if defined(__SANITIZE_THREAD__)
#	undef TEST_TSAN
#	define TEST_TSAN 1
#elif defined(__has_feature)
#	if __has_feature(thread_sanitizer)
#		undef TEST_TSAN
#		define TEST_TSAN 1
#	endif
#endif

/*
 * Bytes of zero on the stack of this function. What has a known size a sanitizer may put elsewhere.
 */
static volatile size_t on_stack_bytes __attribute__((unused));
#define ON_STACK(bytes)                                                                            \
	(on_stack_bytes = (bytes), memset(__builtin_alloca(on_stack_bytes), 0, (bytes)))

struct test {
	const char *suite;
	const char *name;
	void (*fn)(void);
	struct test *next;
};

void test_register(struct test *t);

/*
 * Ends this test: it is counted as skipped, and the reason is reported. `capability` is a name from
 * tests/capabilities; with CI=true a required one that is missing is a failure.
 */
_Noreturn void test_skip(const char *capability, const char *reason);

#define TEST(suite_, name_)                                                                        \
	static void test_##suite_##_##name_(void);                                                 \
	static struct test reg_##suite_##_##name_ = {#suite_, #name_, test_##suite_##_##name_, 0}; \
	__attribute__((constructor)) static void add_##suite_##_##name_(void)                      \
	{                                                                                          \
		test_register(&reg_##suite_##_##name_);                                            \
	}                                                                                          \
	static void test_##suite_##_##name_(void)

#define SKIP(reason) test_skip(NULL, reason)
#define NEEDS(cond, capability, reason)                                                            \
	do {                                                                                       \
		if (!(cond))                                                                       \
			test_skip(capability, reason);                                             \
	} while (0)

#define CHECK(cond)                                                                                \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #cond);         \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

#define CHECK_STR(got, want)                                                                       \
	do {                                                                                       \
		const char *g_ = (got), *w_ = (want);                                              \
		if (strcmp(g_, w_)) {                                                              \
			fprintf(stderr, "%s:%d: got  %s\n%s:%d: want %s\n", __FILE__, __LINE__,    \
				g_, __FILE__, __LINE__, w_);                                       \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

#define CHECK_INT(got, want)                                                                       \
	do {                                                                                       \
		long long g_ = (long long)(got), w_ = (long long)(want);                           \
		if (g_ != w_) {                                                                    \
			fprintf(stderr, "%s:%d: %s is %lld, want %lld\n", __FILE__, __LINE__,      \
				#got, g_, w_);                                                     \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

#endif
