/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "base/containers/buf.h"
#include "unwind/symbols/demangle.h"
#include "unwind/symbols/demangled_size.h"

/* f(a<int, int>, a<S0_, S0_>, a<S1_, S1_>, …): each parameter is twice as long as the one before. */
static void doubling_name(struct buf *out, unsigned times)
{
	static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";

	buf_clear(out);
	buf_add_str(out, "_Z1f1aIiiE");
	for (unsigned i = 0; i < times; i++)
		buf_addf(out, "S_IS%c_S%c_E", digits[i], digits[i]);
}

TEST(demangled_size, names_that_double)
{
	struct buf name = {0};

	doubling_name(&name, 4);
	char *plain = demangle(buf_str(&name));
	if (!plain)
		SKIP("the runtime of C++ is not installed");
	CHECK(strlen(plain) > 200 && strlen(plain) <= demangled_size(buf_str(&name)));
	free(plain);
	/* 256 bytes, which would be 17 GB */
	doubling_name(&name, 24);
	CHECK(name.len < 300);
	CHECK_INT(demangled_size(buf_str(&name)), DEMANGLED_MOST);
	CHECK(!demangle(buf_str(&name)));
	/* small enough for the runtime, too long for a reader */
	doubling_name(&name, 12);
	CHECK(demangled_size(buf_str(&name)) < DEMANGLED_MOST);
	CHECK(!demangle(buf_str(&name)));
	buf_release(&name);
}

TEST(demangled_size, ordinary_names)
{
	static const char *const names[] = {
		"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_"
		"addIfEESt5arrayIPcLm3EEEEviT0_T1_",
		"_ZNSt6vectorIiSaIiEE17_M_realloc_insertIJRKiEEEvN9__gnu_cxx17__normal_"
		"iteratorIPiS1_EEDpOT_",
		"_ZNKSt8functionIFvRKSsiEEclES1_i",
		"_ZZN1A1fEvENKUlvE_clEv",
		"_ZTVN10__cxxabiv117__class_type_infoE",
		"_ZN1AD0Ev",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char *plain = demangle(names[i]);

		if (!plain)
			SKIP("the runtime of C++ is not installed");
		CHECK(strlen(plain) <= demangled_size(names[i]));
		CHECK(demangled_size(names[i]) < (64 << 10));
		free(plain);
	}
}
