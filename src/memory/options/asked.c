/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/options/asked.h"

#include <stdio.h>
#include <string.h>

#include "base/text/printable.h"

#define CUDA_NO_DEVICE 100 /* CUDA_ERROR_NO_DEVICE */

void mem_asked_add(struct mem_asked *a, const struct mem_config *cfg, bool own)
{
	if (own && !a->own) {
		a->memory = a->host = a->operators = a->accesses = a->steps = false;
		a->deferred = a->devices = false;
		a->slots = 0;
		a->own = true;
	}
	a->known = true;
	a->memory |= (cfg->dump_events & MEM_ALLOC) != 0;
	a->host |= cfg->cpu;
	a->operators |= cfg->dump_events & MEM_LAUNCH && cfg->level & MEM_LEVEL_OP;
	a->accesses |= (cfg->events & MEM_ACCESS) != 0;
	a->db |= cfg->format == MEM_DB;
	a->steps |= cfg->nsteps != 0;
	a->deferred |= cfg->mode == MEM_DEFERRED;
	a->devices |= cfg->npu_all;
	a->slots |= cfg->npu_slots;
	if (!own)
		a->alone = !cfg->tool && !cfg->command[0] && cfg->mode == MEM_DEFERRED;
	if (cfg->tool)
		a->tool = cfg->tool;
	if (cfg->program)
		a->program = cfg->program;
	if (cfg->machine.cuda)
		a->machine = cfg->machine;
	if (cfg->command[0])
		snprintf(a->command, sizeof(a->command), "%s", cfg->command);
}

/* The driver's text, as far as it can be shown. */
static void copy_text(char *out, size_t room, const char *text, size_t len)
{
	struct buf shown = {0};

	text_add_printable(&shown, text, len < room / 2 ? len : room / 2);
	snprintf(out, room, "%s", buf_str(&shown));
	buf_release(&shown);
}

const struct mem_gpu_device *mem_asked_device(const struct mem_asked *a, uint32_t device)
{
	for (size_t i = 0; i < a->ngpus; i++)
		if (a->gpus[i].device == device)
			return &a->gpus[i];
	return NULL;
}

static void add_device(struct mem_asked *a, const struct rec_gpu *r, const char *name, size_t len)
{
	if (mem_asked_device(a, r->device) || a->ngpus == MEM_MAX_GPUS)
		return;
	struct mem_gpu_device *d = &a->gpus[a->ngpus++];
	*d = (struct mem_gpu_device){
		.device = r->device,
		.mig = r->flags & GPU_MIG,
		.mps = r->flags & GPU_MPS,
		.total_bytes = r->total_bytes,
	};
	copy_text(d->name, sizeof(d->name), name, len);
}

void mem_asked_gpu(struct mem_asked *a, const struct rec_gpu *r)
{
	size_t len;
	const char *name = rec_text(&r->head, &len), *nul = memchr(name, 0, len);
	size_t n = nul ? (size_t)(nul - name) : len;
	bool works = !r->error && r->device != DEV_NONE;

	if (works)
		add_device(a, r, name, n);
	if (r->flags & GPU_UNSEEN) {
		a->driver_unseen = true;
		return;
	}
	if (r->error && r->device != DEV_NONE) {
		a->context_error = r->error;
		return;
	}
	if (a->gpu.works && !works)
		return; /* of several processes, the one that could use it */
	a->gpu = (struct mem_gpu){
		.known = true,
		.works = works,
		.followed = r->flags & GPU_BLOCKS,
		.error = r->error,
		.driver = r->driver,
		.total_bytes = r->total_bytes,
		.visible_set = nul,
	};
	copy_text(a->gpu.name, sizeof(a->gpu.name), n ? name : "a GPU", n ? n : 5);
	if (nul)
		copy_text(a->gpu.visible, sizeof(a->gpu.visible), nul + 1, len - n - 1);
}

static void add_command(const struct mem_asked *a, const char *options, struct buf *out)
{
	static const char *const tools[] = {[MEM_TOOL_NONE] = "msmemscope",
					    [MEM_TOOL_MSMEMSCOPE] = "msmemscope",
					    [MEM_TOOL_MEM_RECORD] = "sonde mem record",
					    [MEM_TOOL_RECORD] = "sonde record",
					    [MEM_TOOL_TRACE] = "dyno nputrace"};

	buf_addf(out, "%s %s-- %s", tools[a->tool], options,
		 a->command[0] ? a->command : "PROGRAM …");
}

/* What an error of cuInit() means to the people who run the machine; NULL: it says nothing. */
static const char *words_of_error(uint32_t error)
{
	static const struct {
		uint32_t error;
		const char *words;
	} known[] = {
		{2, "the device's memory was full: nvidia-smi shows who has it"},
		{34, "libcuda.so.1 is the stub that programs are linked with, not the driver: is "
		     "a folder called stubs in LD_LIBRARY_PATH?"},
		{46, "the GPU is taken: another process has it for itself (nvidia-smi -c)"},
		{802, "the system is not ready: on machines with NVSwitch the fabric manager has "
		      "to run"},
		{803, "libcuda.so.1 and the kernel's driver are of different versions"},
		{804, "the libraries for forward compatibility do not support this GPU"},
		{805, "the MPS server could not be reached: is nvidia-cuda-mps-control running, "
		      "with the same CUDA_MPS_PIPE_DIRECTORY?"},
		{806, "the MPS server broke off; its log says why"},
		{807, "the MPS server is not ready"},
		{808, "the MPS server has as many clients as it can have"},
		{809, "the MPS server has as many connections as it can have"},
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (known[i].error == error)
			return known[i].words;
	return NULL;
}

static void describe_no_gpu(const struct mem_asked *a, struct buf *out)
{
	const struct mem_gpu *g = &a->gpu;
	const char *words = words_of_error(g->error);

	if (g->error == CUDA_NO_DEVICE || !g->error)
		buf_add_str(out, "The job initialised CUDA, which found no GPU");
	else
		buf_addf(out, "CUDA failed when the job initialised it (error %u of the driver)",
			 g->error);
	if (g->visible_set)
		buf_addf(out, "; CUDA_VISIBLE_DEVICES was '%s'", g->visible);
	if (words)
		buf_addf(out, ": %s", words);
	else if (g->error && g->error != CUDA_NO_DEVICE && !g->visible_set)
		buf_add_str(out, "; nvidia-smi says whether the driver works");
	buf_add_str(out, words && words[strlen(words) - 1] == '?' ? " " : ". ");
}

/* The machine, or the container, as the launcher found it. */
static void describe_machine(const struct mem_machine *m, struct buf *out)
{
	if (!m->cuda)
		return;
	if (m->gpus && m->cuda == MEM_DRIVER_MISSING)
		buf_addf(out, "There is a GPU of NVIDIA (/dev/nvidia*), but no libcuda.so.1 where "
			      "programs look for it, so frameworks use the CPU: in a container the "
			      "driver comes with --gpus all and "
			      "NVIDIA_DRIVER_CAPABILITIES=compute,utility. ");
	else if (m->gpus)
		buf_addf(
			out,
			"There %s of NVIDIA and %s driver, which the job has not asked for: is its "
			"framework built for CPUs? ",
			m->gpus == 1 ? "is a GPU" : "are GPUs", m->gpus == 1 ? "its" : "their");
	else if (!m->npus && m->cuda == MEM_DRIVER_MISSING)
		buf_add_str(out, "There is no GPU of NVIDIA (/dev/nvidia*) and no NPU "
				 "(/dev/davinci*) here that it could have used. ");
}

/* Of a job that has used CUDA: whether that explains it. */
static bool describe_of_gpu(const struct mem_asked *a, struct buf *out)
{
	const struct mem_gpu *g = &a->gpu;

	if (!g->known)
		return false;
	if (!g->works) {
		describe_no_gpu(a, out);
		return false; /* nor has it used another device */
	}
	if (!g->followed) {
		buf_addf(
			out,
			"The job used %s, and its driver (CUDA %u.%u) gave it functions for memory "
			"that cannot be followed: recording needs CUDA 11.3 or later and a program "
			"that does not bypass dlsym().",
			g->name, g->driver / 1000, g->driver % 1000 / 10);
		return true;
	}
	if (!a->devices) {
		buf_addf(out,
			 "The job used %s, which --device has left out. Record it with: ", g->name);
		add_command(a, "", out);
		return true;
	}
	if (a->context_error) {
		const char *words = words_of_error(a->context_error);
		buf_addf(out, "The job could not use %s (error %u of the driver)%s%s", g->name,
			 a->context_error, words ? ": " : "", words ? words : "");
		buf_add_str(out, words && words[strlen(words) - 1] == '?' ? "" : ".");
		return true;
	}
	buf_addf(out, "The job initialised %s and got no memory there, as far as can be seen. ",
		 g->name);
	return false;
}

/* Neither an NPU nor a GPU that works, and nothing else was asked for. */
static void describe_no_device(const struct mem_asked *a, struct buf *out)
{
	if (!a->gpu.known && a->driver_unseen) {
		buf_add_str(
			out,
			"The job loaded libcuda.so.1, and no call of it was seen: it did not use "
			"it, or loaded it in a way that passes over preloaded libraries "
			"(dlmopen). ");
	} else if (!a->gpu.known) {
		buf_add_str(out, "The job used no memory of an NPU or GPU that can be recorded: no "
				 "process of it has initialised one, or it ran without LD_PRELOAD "
				 "(statically linked, env -i, sudo, in another container). ");
		describe_machine(&a->machine, out);
	}
	buf_add_str(out, "Record the memory of the CPU with: ");
	add_command(a, "--device=npu,cpu ", out);
	buf_add_str(out, a->tool == MEM_TOOL_RECORD
				 ? " (see docs/record.md)."
				 : " (in Python: msmemscope.config(device=\"cpu\"), see "
				   "docs/python.md).");
}

void mem_asked_why_empty(const struct mem_asked *a, struct buf *out)
{
	if (!a->known)
		return;
	if (a->tool == MEM_TOOL_TRACE)
		buf_add_str(out, "A trace of a running job has blocks of memory only if msmemscope "
				 "records the job, and with --profile-memory.");
	else if (a->program == MEM_PROGRAM_STATIC)
		buf_add_str(out, "The program is statically linked: nothing can be preloaded into "
				 "it. Link it dynamically to record it.");
	else if (a->program == MEM_PROGRAM_PRIVILEGED)
		buf_add_str(out, "The program gets rights of its own when it starts (setuid or "
				 "capabilities): nothing can be preloaded into it.");
	else if (a->deferred && !a->own)
		buf_add_str(out, "The job did not ask for a beginning: with "
				 "--collect-mode=deferred, or without the msmemscope command, "
				 "recording begins when it calls sonde_start(), in Python "
				 "msmemscope.start().");
	else if (!a->memory)
		buf_addf(out, "Allocations and frees were not asked for (%s).",
			 a->tool == MEM_TOOL_RECORD ? "--only" : "--events");
	else if (a->steps)
		buf_add_str(out, "Only some steps were asked for (--steps), and nothing happened "
				 "in them: the job has to announce its steps, see docs/mem.md.");
	else if (!describe_of_gpu(a, out) && !a->host)
		describe_no_device(a, out);
	else if (a->host && a->alone)
		buf_add_str(out,
			    "The program was started without msmemscope in front of it: then "
			    "nothing of host memory is recorded but torch's tensors, and there "
			    "were none. Start it with: msmemscope --collect-mode=deferred "
			    "--device=cpu -- python …");
	else if (a->host)
		buf_add_str(out, "No process allocated memory where it can be seen: a statically "
				 "linked program cannot be recorded, nor one with an allocator of "
				 "its own.");
}
