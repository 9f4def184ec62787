/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Which operation of autograd a thread computes the gradient of: functions of libtorch, and where a node
 * has its number. */
#include "python/_sonde/autograd.h"

#include "guest/collect/collect.h"

#include <dlfcn.h>
#include <elf.h>
#include <stdint.h>
#include <string.h>

/*
 * torch::autograd::get_current_node() returns a smart pointer, in memory, as it is longer than two
 * words here. It counts one reference more, and that goes back at once: the engine holds two while it
 * computes, in its task and for whoever asks, so none of ours is ever the last.
 *
 *	std::shared_ptr                 node, counts      the number of the node is at 24
 *	intrusive_ptr (2.12 and later)  node              it is at 16, and the count in the node, at 8
 */
struct node_pointer {
	char *node;
	char *counts;
	void *unused;
};

#define LAST_OFFSET 96 /* in a node, where its number is looked for */
#define NUMBER_AT_SHARED 24
#define NUMBER_AT_INTRUSIVE 16
#define ENGINES_COUNTS 2

static struct node_pointer (*current_node)(void);

static void *shared_node_now(void)
{
	struct node_pointer n = current_node();

	if (n.node)
		__atomic_sub_fetch((int32_t *)(void *)(n.counts + 8), 1, __ATOMIC_ACQ_REL);
	return n.node;
}

static void *intrusive_node_now(void)
{
	struct node_pointer n = current_node();
	uint64_t *count = (uint64_t *)(void *)(n.node + 8);

	if (n.node && (uint32_t)__atomic_load_n(count, __ATOMIC_RELAXED) > ENGINES_COUNTS)
		__atomic_sub_fetch(count, 1, __ATOMIC_ACQ_REL);
	return n.node;
}

/* The object of a node holds a pointer to it behind its head. */
static const char *node_of(PyObject *object)
{
	void *node;

	memcpy(&node, (char *)object + 2 * sizeof(void *), sizeof(node));
	return node;
}

static uint64_t number_at(const char *node, uint32_t offset)
{
	uint64_t v;

	memcpy(&v, node + offset, sizeof(v));
	return v;
}

/* Where both nodes have their numbers, and behind it the thread that counts. */
static bool find_offsets(const char *a, uint64_t number_a, const char *b, uint64_t number_b,
			 struct collect_autograd *out)
{
	for (uint32_t at = NUMBER_AT_INTRUSIVE; at <= NUMBER_AT_SHARED; at += 8) {
		if (number_at(a, at) != number_a || number_at(b, at) != number_b)
			continue;
		uint64_t thread = out->thread();
		for (uint32_t next = at + 8; next <= LAST_OFFSET; next += 8) {
			if (number_at(a, next) != thread || number_at(b, next) != thread)
				continue;
			out->sequence_at = at;
			out->thread_at = next;
			out->node = at == NUMBER_AT_SHARED ? shared_node_now : intrusive_node_now;
			return true;
		}
	}
	return false;
}

extern void *__tls_get_addr(void *);

/* Where the dynamic loader's code and data are. */
static bool find_loader(struct collect_autograd *out)
{
	uintptr_t end = 0;
	Dl_info info;

	if (!dladdr(__extension__(void *) __tls_get_addr, &info) || !info.dli_fbase)
		return false;
	const char *base = info.dli_fbase;
	const Elf64_Ehdr *head = info.dli_fbase;
	const Elf64_Phdr *part = (const void *)(base + head->e_phoff);
	for (unsigned i = 0; i < head->e_phnum; i++)
		if (part[i].p_type == PT_LOAD && part[i].p_vaddr + part[i].p_memsz > end)
			end = part[i].p_vaddr + part[i].p_memsz;
	out->loader_from = (uintptr_t)base;
	out->loader_to = (uintptr_t)base + end;
	return end > 0;
}

PyObject *autograd_follow(PyObject *self, PyObject *args)
{
	static struct collect_autograd found;
	unsigned long long number[2];
	PyObject *node[2];
	const char *path;

	(void)self;
	if (!PyArg_ParseTuple(args, "sOKOK", &path, &node[0], &number[0], &node[1], &number[1]))
		return NULL;
	void *lib = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
	if (!lib)
		return PyBool_FromLong(0);
	*(void **)&found.sequence = dlsym(lib, "_ZN2at15sequence_number4peekEv");
	*(void **)&found.thread = dlsym(lib, "_ZN2at14RecordFunction15currentThreadIdEv");
	*(void **)&current_node = dlsym(lib, "_ZN5torch8autograd16get_current_nodeEv");
	bool known = found.sequence && found.thread && current_node && find_loader(&found) &&
		     number[0] != number[1] && found.sequence() > number[1] &&
		     find_offsets(node_of(node[0]), number[0], node_of(node[1]), number[1], &found);
	if (known)
		collect_autograd(&found);
	return PyBool_FromLong(known);
}
