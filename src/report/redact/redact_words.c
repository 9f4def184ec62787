/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "report/redact/redact_words.h"

#include <string.h>

/* Words that answers use and that functions are often called, too. */
static const char *const words[] = {
	"a",	   "about",    "above",	  "after",     "all",	    "allocated", "allocation",
	"alone",   "and",      "another", "are",       "as",	    "asked",	 "at",
	"average", "backward", "be",	  "before",    "below",	    "block",	 "blocks",
	"buffer",  "buffers",  "by",	  "bytes",     "call",	    "calls",	 "code",
	"command", "compute",  "count",	  "cpu",       "data",	    "device",	 "driver",
	"each",	   "early",    "end",	  "ended",     "event",	    "events",	 "every",
	"exact",   "exit",     "file",	  "first",     "for",	    "forward",	 "found",
	"free",	   "freed",    "from",	  "gradients", "growth",    "half",	 "held",
	"high",	   "higher",   "host",	  "in",	       "inside",    "is",	 "it",
	"job",	   "kept",     "kernel",  "kernels",   "known",	    "largest",	 "last",
	"late",	   "leak",     "leaks",	  "left",      "less",	    "loses",	 "lost",
	"lower",   "main",     "malloc",  "maximum",   "memory",    "model",	 "module",
	"modules", "more",     "most",	  "next",      "no",	    "nobody",	 "not",
	"number",  "of",       "on",	  "one",       "operator",  "operators", "optimizer",
	"other",   "others",   "out",	  "owner",     "part",	    "peak",	 "place",
	"places",  "pool",     "pools",	  "process",   "processes", "program",	 "python",
	"rank",	   "ranks",    "ran",	  "report",    "rest",	    "root",	 "rows",
	"run",	   "same",     "since",	  "size",      "so",	    "stack",	 "start",
	"state",   "states",   "step",	  "steps",     "tensor",    "tensors",	 "than",
	"that",	   "the",      "there",	  "this",      "thread",    "time",	 "to",
	"total",   "train",    "type",	  "unknown",   "use",	    "used",	 "was",
	"weight",  "weights",  "were",	  "what",      "which",	    "with",	 "within",
	"without", "worker",   "would",	  "sonde",     "PyTorch",   "Python",	 "Process",
	"Device",  "B",	       "KiB",	  "MiB",       "GiB",	    "s",	 "ms",
	"python3", NULL,
};

/* Parts of owners that are the same in all jobs: see docs/owners.md. */
static const char *const labels[] = {
	"PTA",
	"PTA_WORKSPACE",
	"ATB",
	"MindSpore",
	"MINDSPORE",
	"TORCH",
	"CUDA",
	"HAL",
	"HOST",
	"PYTHON",
	"CANN",
	"HCCL",
	"APP",
	"RUNTIME",
	"GE",
	"AICPU",
	"host",
	"weight",
	"weights",
	"buffer",
	"gradient",
	"optimizer_state",
	"kv_cache",
	"activation",
	"backward",
	"optimizer",
	"ops",
	"aten",
	"model",
	"temporary",
	"fsdp1",
	"fsdp2",
	"NCCL",
	"cuBLAS",
	"cuDNN",
	"JAX",
	"CuPy",
	"others",
	"unknown",
	"sharded_weight",
	"sharded",
	"pinned",
	"no call stack recorded",
	"before the recording",
	"others, too small to be listed",
	"free inside the pool",
	"...",
	NULL,
};

static const char *const parameters[] = {
	"weight", "bias", "running_mean", "running_var", "num_batches_tracked", "optimizer", NULL,
};

static const char *const kernels[] = {
	"void at::", "at::",	   "aten::",	    "aclnn",	      "Aclnn",	   "hcom_",
	"Hccl",	     "ncclKernel", "ncclDevKernel", "cublas",	      "cudnn",	   "cutlass",
	"ampere_",   "sm80_",	   "sm90_",	    "volta_",	      "turing_",   "hopper_",
	"gemm",	     "memcpy",	   "memset",	    "Memcpy",	      "Memset",	   "MatMul",
	"Add",	     "Mul",	   "Softmax",	    "LayerNorm",      "ReduceSum", "Cast",
	"Transpose", "Conv2D",	   "BatchMatMul",   "FlashAttention", NULL,
};

static bool is_in(const char *const *list, const char *text, size_t len)
{
	for (; *list; list++)
		if (strlen(*list) == len && !memcmp(*list, text, len))
			return true;
	return false;
}

bool redact_is_word(const char *text, size_t len)
{
	return is_in(words, text, len);
}

bool redact_is_unit(const char *text, size_t len)
{
	static const char *const units[] = {"B/s",    "KiB/s", "MiB/s", "GiB/s",
					    "and/or", "1/s",   NULL};

	return is_in(units, text, len);
}

bool redact_is_label(const char *text, size_t len)
{
	return is_in(labels, text, len);
}

bool redact_is_parameter(const char *text, size_t len)
{
	return is_in(parameters, text, len);
}

bool redact_is_vendor_kernel(const char *text, size_t len)
{
	for (const char *const *k = kernels; *k; k++)
		if (len >= strlen(*k) && !memcmp(text, *k, strlen(*k)))
			return true;
	return false;
}
