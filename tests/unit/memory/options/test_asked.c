/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/options/asked.h"

#include <string.h>

#include "test.h"

static struct mem_config of_machine(enum mem_driver cuda, uint32_t gpus, uint32_t npus)
{
	return (struct mem_config){
		.npu_all = true,
		.dump_events = MEM_ALLOC,
		.machine = {.cuda = cuda, .gpus = gpus, .npus = npus},
		.command = "python train.py",
	};
}

/* Why nothing was recorded there contains `words`. */
static bool says(const struct mem_config *cfg, const char *words)
{
	struct mem_asked a = {0};
	struct buf out = {0};

	mem_asked_add(&a, cfg, false);
	mem_asked_why_empty(&a, &out);
	bool found = strstr(buf_str(&out), words) &&
		     strstr(buf_str(&out), "msmemscope --device=npu,cpu -- python train.py");
	if (!found)
		fprintf(stderr, "%s\n", buf_str(&out));
	buf_release(&out);
	return found;
}

TEST(mem_asked, says_what_the_machine_lacks)
{
	struct mem_config cfg = of_machine(MEM_DRIVER_MISSING, 0, 0);

	CHECK(says(&cfg, "no GPU of NVIDIA (/dev/nvidia*) and no NPU (/dev/davinci*)"));
	cfg = of_machine(MEM_DRIVER_MISSING, 8, 0);
	CHECK(says(&cfg, "no libcuda.so.1 where programs look for it"));
	cfg = of_machine(MEM_DRIVER_FOUND, 1, 0);
	CHECK(says(&cfg, "There is a GPU of NVIDIA and its driver, which the job has not asked"));
	cfg = of_machine(MEM_DRIVER_FOUND, 0, 0); /* as on WSL */
	CHECK(says(&cfg, "in another container). Record the memory"));
	cfg = of_machine(MEM_DRIVER_UNKNOWN, 0, 0); /* an older recording */
	CHECK(says(&cfg, "in another container). Record the memory"));
}

/* A process has settings of its own: the machine and the command stay known. */
TEST(mem_asked, settings_of_a_process_leave_the_machine_alone)
{
	struct mem_config cfg = of_machine(MEM_DRIVER_MISSING, 2, 0), own = {.cpu = true};
	struct mem_asked a = {0};

	mem_asked_add(&a, &cfg, false);
	mem_asked_add(&a, &own, true);
	CHECK(a.own && a.host && !a.memory && !a.devices);
	CHECK(a.machine.gpus == 2);
	CHECK_STR(a.command, "python train.py");
}

static void tell_gpu(struct mem_asked *a, uint16_t device, uint32_t error, uint8_t flags,
		     const char *text, size_t len)
{
	union {
		char bytes[sizeof(struct rec_gpu) + 256];
		uint64_t aligned;
	} room = {{0}};
	struct rec_gpu *r = (struct rec_gpu *)(void *)&room;

	r->head.type = REC_GPU;
	r->head.size = (uint16_t)(sizeof(*r) + (len + 7) / 8 * 8);
	r->total_bytes = 10u << 20;
	r->device = device;
	r->error = error;
	r->flags = flags;
	r->len = (uint16_t)len;
	memcpy(r->text, text, len);
	mem_asked_gpu(a, r);
}

TEST(mem_asked, keeps_every_gpu_once)
{
	struct mem_asked a = {0};

	for (unsigned round = 0; round < 2; round++)
		for (uint16_t device = 0; device < 2 * MEM_MAX_GPUS; device++)
			tell_gpu(&a, device, 0, device ? GPU_MPS : GPU_MIG, "A\33[31m", 6);
	CHECK(a.ngpus == MEM_MAX_GPUS);
	const struct mem_gpu_device *d = mem_asked_device(&a, 0);
	CHECK(d && d->mig && !d->mps && d->total_bytes == 10u << 20);
	CHECK(!strchr(d->name, '\33'));
	CHECK(mem_asked_device(&a, 5)->mps);
	CHECK(!mem_asked_device(&a, MEM_MAX_GPUS));
}

TEST(mem_asked, errors_of_the_driver_in_words)
{
	struct mem_config cfg = of_machine(MEM_DRIVER_FOUND, 1, 0);
	struct {
		uint32_t error;
		const char *words;
	} cases[] = {{805, "error 805 of the driver): the MPS server could not be reached"},
		     {34, "is the stub that programs are linked with"},
		     {803, "of different versions."},
		     {999, "nvidia-smi says whether the driver works."}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct mem_asked a = {0};
		struct buf out = {0};

		mem_asked_add(&a, &cfg, false);
		tell_gpu(&a, DEV_NONE, cases[i].error, 0, "", 0);
		mem_asked_why_empty(&a, &out);
		CHECK(strstr(buf_str(&out), cases[i].words) != NULL);
		CHECK(!strstr(buf_str(&out), "has not asked for"));
		buf_release(&out);
	}
}

TEST(mem_asked, a_device_that_could_not_be_used)
{
	struct mem_config cfg = of_machine(MEM_DRIVER_FOUND, 1, 0);
	struct mem_asked a = {0};
	struct buf out = {0};

	mem_asked_add(&a, &cfg, false);
	tell_gpu(&a, 0, 0, GPU_BLOCKS, "H200", 4);
	tell_gpu(&a, 0, 46, GPU_BLOCKS, "H200", 4);
	mem_asked_why_empty(&a, &out);
	CHECK_STR(buf_str(&out),
		  "The job could not use H200 (error 46 of the driver): the GPU is taken: "
		  "another process has it for itself (nvidia-smi -c).");
	buf_release(&out);
}

TEST(mem_asked, a_driver_that_nobody_saw_in_use)
{
	struct mem_config cfg = of_machine(MEM_DRIVER_FOUND, 1, 0);
	struct mem_asked a = {0};
	struct buf out = {0};

	mem_asked_add(&a, &cfg, false);
	tell_gpu(&a, DEV_NONE, 0, GPU_UNSEEN, "", 0);
	CHECK(!a.gpu.known);
	mem_asked_why_empty(&a, &out);
	CHECK(strstr(buf_str(&out), "loaded libcuda.so.1, and no call of it was seen") != NULL);
	tell_gpu(&a, 0, 0, GPU_BLOCKS, "H200", 4); /* another process used it */
	buf_clear(&out);
	mem_asked_why_empty(&a, &out);
	CHECK(strstr(buf_str(&out), "initialised H200 and got no memory there") != NULL);
	buf_release(&out);
}

/* Somebody's program that began by itself, without a command of ours in front. */
TEST(mem_asked, says_that_nothing_stood_in_front)
{
	struct mem_config cfg = {.mode = MEM_DEFERRED, .npu_all = true, .dump_events = MEM_ALLOC};
	struct mem_config own = {.cpu = true, .dump_events = MEM_ALLOC};
	struct mem_asked a = {0};
	struct buf out = {0};

	mem_asked_add(&a, &cfg, false);
	mem_asked_add(&a, &own, true);
	mem_asked_why_empty(&a, &out);
	CHECK(strstr(buf_str(&out), "started without msmemscope in front"));
	CHECK(!strstr(buf_str(&out), "statically linked"));
	buf_clear(&out);
	a = (struct mem_asked){0};
	cfg.tool = MEM_TOOL_MSMEMSCOPE;
	mem_asked_add(&a, &cfg, false);
	mem_asked_add(&a, &own, true);
	mem_asked_why_empty(&a, &out);
	CHECK(strstr(buf_str(&out), "statically linked"));
	buf_release(&out);
}

/* Whoever used one command is not told to use another. */
TEST(mem_asked, names_the_command_that_was_used)
{
	struct mem_config cfg = of_machine(MEM_DRIVER_MISSING, 0, 0);
	struct mem_asked a = {0};
	struct buf out = {0};

	cfg.tool = MEM_TOOL_RECORD;
	mem_asked_add(&a, &cfg, false);
	mem_asked_why_empty(&a, &out);
	CHECK(strstr(buf_str(&out), ": sonde record --device=npu,cpu -- python train.py"));
	CHECK(!strstr(buf_str(&out), "msmemscope"));
	buf_release(&out);
}
