/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "device/metrics_processes.h"

#include <errno.h>
#include <stdlib.h>

#include "base/mem.h"
#include "device/ascend/metrics/dcmi.h"
#include "device/ascend/metrics/npu_smi.h"

static void add_chip(const struct ascend_chip *c, struct device_processes *out)
{
	for (unsigned i = 0; i < c->memory.nprocesses; i++) {
		uint64_t bytes = c->memory.processes[i].bytes;
		const struct device_process p = {
			.pid = (pid_t)c->memory.processes[i].pid,
			.inner_pid = (pid_t)c->memory.processes[i].inner_pid,
			.device = (int)c->device,
			.bytes = bytes == ASCEND_NO_BYTES ? UINT64_MAX : bytes,
		};

		device_processes_add(out, &p);
	}
}

/* False if the library cannot report: not there, without a device, or too old. */
static bool by_library(struct device_processes *out, struct err *err)
{
	struct ascend_dcmi *d = NULL;
	struct ascend_chip *chip;
	bool reported = false;

	if (ascend_dcmi_open(&d, err) < 0)
		return false;
	chip = xcalloc(1, sizeof(*chip));
	for (unsigned i = 0; i < ascend_dcmi_count(d); i++) {
		if (ascend_dcmi_processes(d, i, chip) < 0)
			continue;
		reported = true;
		add_chip(chip, out);
	}
	if (!reported)
		err_set(err, -ENOTSUP, "libdcmi.so does not report who uses the NPUs");
	free(chip);
	ascend_dcmi_close(d);
	return reported;
}

static int by_program(unsigned timeout_ms, struct device_processes *out, struct err *err)
{
	struct npu_smi smi = {.hanging = out->hanging};
	struct buf text = {0};
	int r = npu_smi_run(&smi, timeout_ms, &text, err);

	out->hanging = smi.hanging;
	if (r == 0) {
		struct ascend_chip *chips = xcalloc(NPU_SMI_CHIPS, sizeof(*chips));
		unsigned n = npu_smi_parse(text.data, text.len, chips, NPU_SMI_CHIPS);

		for (unsigned i = 0; i < n; i++)
			add_chip(&chips[i], out);
		free(chips);
	}
	buf_release(&text);
	return r;
}

int ascend_processes(unsigned timeout_ms, struct device_processes *out, struct err *err)
{
	struct err no_library = {0}, no_program = {0};

	out->how = "DCMI";
	if (by_library(out, &no_library))
		return 0;
	out->how = "npu-smi";
	int r = by_program(timeout_ms, out, &no_program);
	if (r == 0)
		return 0;
	return err_set(err, r, "no NPU: %.240s; %.240s", no_library.text, no_program.text);
}
