/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/options/asked.h"

void mem_asked_add(struct mem_asked *a, const struct mem_config *cfg, bool own)
{
	if (own && !a->own)
		*a = (struct mem_asked){.own = true, .db = a->db, .program = a->program};
	a->known = true;
	a->memory |= (cfg->dump_events & MEM_ALLOC) != 0;
	a->host |= cfg->cpu;
	a->operators |= cfg->dump_events & MEM_LAUNCH && cfg->level & MEM_LEVEL_OP;
	a->accesses |= (cfg->events & MEM_ACCESS) != 0;
	a->db |= cfg->format == MEM_DB;
	a->steps |= cfg->nsteps != 0;
	a->deferred |= cfg->mode == MEM_DEFERRED;
	if (cfg->program)
		a->program = cfg->program;
}

void mem_asked_why_empty(const struct mem_asked *a, struct buf *out)
{
	if (!a->known)
		return;
	if (a->program == MEM_PROGRAM_STATIC)
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
		buf_add_str(out, "Allocations and frees were not asked for (--events).");
	else if (a->steps)
		buf_add_str(out, "Only some steps were asked for (--steps), and nothing happened "
				 "in them: the job has to announce its steps, see docs/mem.md.");
	else if (!a->host)
		buf_add_str(out,
			    "The job used no memory of an NPU or GPU that can be recorded. Record "
			    "the memory of the CPU with --device=npu,cpu, in Python with "
			    "msmemscope.config(device=\"cpu\"): see docs/python.md. A "
			    "statically linked program cannot be recorded.");
	else
		buf_add_str(out, "No process allocated memory where it can be seen: a statically "
				 "linked program cannot be recorded, nor one with an allocator of "
				 "its own.");
}
