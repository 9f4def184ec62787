/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 *	/srv/job/train.py, train.py, <stdin>, <ipython-input-3-…>	user
 *	/…/site-packages/torch/nn/modules/linear.py			package
 *	/tmp/torchinductor_me/…/c4f….py, <eval_with_key>.5		package: generated
 *	/…/torch/distributed/run.py, /usr/bin/torchrun			launcher
 *	/usr/lib/python3.11/threading.py, <frozen importlib._bootstrap>	standard
 *	/usr/local/lib/python/msmemscope/_collectors.py, <sonde>	standard: ours
 */
#include "unwind/python/origin.h"

#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const char *const package_folders[] = {"/site-packages/", "/dist-packages/"};
static const char *const generated[] = {"/torchinductor_", "/.cache/torch/", "/.triton/cache/"};
static const char *const launchers[] = {
	"/torch/multiprocessing/spawn.py",
	"/torch/distributed/run.py",
	"/torch/distributed/launch.py",
	"/torch/distributed/launcher/",
	"/torch/distributed/elastic/",
	"/accelerate/commands/",
	"/accelerate/utils/launch.py",
	"/deepspeed/launcher/",
	"/bin/torchrun",
	"/bin/accelerate",
	"/bin/deepspeed",
	"/bin/msrun",
};
/* Ours lie beside the libraries (PREFIX/lib/python), or where packages are installed. */
static const char *const own_homes[] = {"/python/", "-packages/"};
static const char *const own_packages[] = {
	"sonde/", "msmemscope/", "msmonitor/", "IPCMonitor/", "mindstudio_monitor/",
};
/* What a person types; every other name in angle brackets is of code that some library made. */
static const char *const typed[] = {"<stdin>", "<ipython-input", "<console>", "<cell "};

/* What people call with a cut path: PyTorch's profiler takes away what is in sys.path. */
static const char *const cut_packages[] = {
	"torch/",	"torch_npu/",
	"torchvision/", "torchaudio/",
	"torchdata/",	"transformers/",
	"accelerate/",	"deepspeed/",
	"lightning/",	"pytorch_lightning/",
	"datasets/",	"peft/",
	"trl/",		"triton/",
	"apex/",	"numpy/",
	"pandas/",	"PIL/",
	"scipy/",	"tqdm/",
	"safetensors/", "tensorboard/",
	"wandb/",	"mindspore/",
	"mindspeed/",	"flash_attn/",
	"xformers/",	"vllm/",
	"ray/",		"webdataset/",
	"nvidia/",	"huggingface_hub/",
};
static const char *const cut_standard[] = {
	"threading.py",	 "queue.py",	 "selectors.py", "subprocess.py", "socket.py",
	"contextlib.py", "functools.py", "random.py",	 "copy.py",	  "pickle.py",
	"tempfile.py",	 "shutil.py",	 "os.py",	 "runpy.py",	  "weakref.py",
	"typing.py",	 "inspect.py",	 "warnings.py",	 "traceback.py",  "multiprocessing/",
	"concurrent/",	 "asyncio/",	 "importlib/",	 "collections/",  "json/",
	"logging/",	 "ctypes/",	 "unittest/",	 "encodings/",	  "zipfile.py",
};

static bool begins_with(const char *file, size_t len, const char *with)
{
	size_t n = strlen(with);

	return len >= n && !memcmp(file, with, n);
}

/* Behind the first `part`; NULL if there is none. */
static const char *text_behind(const char *file, size_t len, const char *part)
{
	const char *at = memmem(file, len, part, strlen(part));

	return at ? at + strlen(part) : NULL;
}

static const char *behind_packages(const char *file, size_t len)
{
	for (unsigned i = 0; i < COUNT(package_folders); i++) {
		const char *rest = text_behind(file, len, package_folders[i]);
		if (rest)
			return rest;
	}
	return NULL;
}

/* Behind "/lib/python3.11/" or the like. */
static const char *behind_library(const char *file, size_t len)
{
	static const char part[] = "/python3";
	const char *end = file + len, *rest = file;

	while ((rest = text_behind(rest, (size_t)(end - rest), part)) != NULL) {
		const char *at = rest - strlen(part), *p = rest;
		while (p < end && ((*p >= '0' && *p <= '9') || *p == '.' || *p == 't'))
			p++;
		if (p < end && *p == '/' &&
		    ((at - file >= 4 && !memcmp(at - 4, "/lib", 4)) ||
		     (at - file >= 6 && !memcmp(at - 6, "/lib64", 6))))
			return p + 1;
	}
	return NULL;
}

static bool is_one_of(const char *file, size_t len, const char *const *parts, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (text_behind(file, len, parts[i]))
			return true;
	return false;
}

bool python_is_own(const char *file, size_t len)
{
	static const char brought[] = "<sonde>"; /* guest/runtime/import_package.c */
	const char *end = file + len;

	if (len == sizeof(brought) - 1 && begins_with(file, len, brought))
		return true;

	for (unsigned i = 0; i < COUNT(own_homes); i++) {
		const char *rest = file;

		while ((rest = text_behind(rest, (size_t)(end - rest), own_homes[i])) != NULL)
			for (unsigned k = 0; k < COUNT(own_packages); k++)
				if (begins_with(rest, (size_t)(end - rest), own_packages[k]))
					return true;
	}
	return false;
}

static enum python_origin bracket_origin(const char *file, size_t len)
{
	for (unsigned i = 0; i < COUNT(typed); i++)
		if (begins_with(file, len, typed[i]))
			return ORIGIN_USER;
	if (begins_with(file, len, "<frozen ") || begins_with(file, len, "<string>"))
		return ORIGIN_STANDARD;
	return ORIGIN_PACKAGE;
}

enum python_origin python_origin(const char *file, size_t len)
{
	if (python_is_own(file, len))
		return ORIGIN_STANDARD;
	if (len && file[0] == '<')
		return bracket_origin(file, len);
	if (is_one_of(file, len, launchers, COUNT(launchers)))
		return ORIGIN_LAUNCHER;
	if (behind_packages(file, len) || is_one_of(file, len, generated, COUNT(generated)))
		return ORIGIN_PACKAGE;
	return behind_library(file, len) ? ORIGIN_STANDARD : ORIGIN_USER;
}

static bool begins_with_one(const char *file, size_t len, const char *const *parts, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (begins_with(file, len, parts[i]))
			return true;
	return false;
}

enum python_origin python_origin_cut(const char *file, size_t len)
{
	enum python_origin origin = python_origin(file, len);

	if (origin != ORIGIN_USER || !len || file[0] == '/')
		return origin;
	if (begins_with_one(file, len, cut_packages, COUNT(cut_packages)))
		return ORIGIN_PACKAGE;
	return begins_with_one(file, len, cut_standard, COUNT(cut_standard)) ? ORIGIN_STANDARD
									     : ORIGIN_USER;
}

const char *python_short_path(const char *file, size_t len)
{
	const char *rest = behind_packages(file, len);

	if (!rest)
		rest = behind_library(file, len);
	return rest ? rest : file;
}
