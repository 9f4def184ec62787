/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "python/_sonde/module.h"

#include "memory/options/config.h"
#include "python/_sonde/interpreter.h"
#include "wire/control_page.h"
#include "wire/record.h"

static const struct {
	const char *name;
	long value;
} constants[] = {
	{"DEV_NONE", DEV_NONE},
	{"DEV_HOST", DEV_HOST},
	{"POOL_HOST", POOL_HOST},
	{"POOL_PTA", POOL_PTA},
	{"POOL_TORCH", POOL_TORCH},
	{"POOL_CUDA", POOL_CUDA},
	{"WANT_ALLOC", WANT_ALLOC},
	{"WANT_ACCESS", WANT_ACCESS},
	{"WANT_OP", WANT_OP},
	{"WANT_KERNEL", WANT_KERNEL},
	{"WANT_HOST", WANT_HOST},
	{"WANT_WATCH", WANT_WATCH},
	{"WANT_TRACE", WANT_TRACE},
	{"WANT_OWNERS", WANT_OWNERS},
	/* of settings() */
	{"EVENT_ALLOC", MEM_ALLOC},
	{"EVENT_FREE", MEM_FREE},
	{"EVENT_LAUNCH", MEM_LAUNCH},
	{"EVENT_ACCESS", MEM_ACCESS},
	{"LEVEL_OP", MEM_LEVEL_OP},
	{"LEVEL_KERNEL", MEM_LEVEL_KERNEL},
	{"ANALYSIS_LEAKS", MEM_LEAKS},
	{"ANALYSIS_DECOMPOSE", MEM_DECOMPOSE},
	{"ANALYSIS_INEFFICIENT", MEM_INEFFICIENT},
	{"ANALYSIS_OOM", MEM_OOM},
};

static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT,
	.m_name = "sonde._sonde",
	.m_doc = "The part of sonde's Python packages that is written in C.",
	.m_size = -1,
};

PyMODINIT_FUNC PyInit__sonde(void);

PyMODINIT_FUNC PyInit__sonde(void)
{
	PyMethodDef *const tables[] = {control_methods, event_methods,	   op_methods,
				       history_methods, sanitizer_methods, trace_methods,
				       tensor_methods,	layer_methods};
	PyObject *m = interpreter_fits() ? PyModule_Create(&definition) : NULL;

	for (size_t i = 0; m && i < sizeof(tables) / sizeof(tables[0]); i++)
		if (PyModule_AddFunctions(m, tables[i]) < 0)
			Py_CLEAR(m);
	for (size_t i = 0; m && i < sizeof(constants) / sizeof(constants[0]); i++)
		if (PyModule_AddIntConstant(m, constants[i].name, constants[i].value) < 0)
			Py_CLEAR(m);
	if (m && PyModule_AddStringConstant(m, "__version__", SONDE_VERSION) < 0)
		Py_CLEAR(m);
	return m;
}
