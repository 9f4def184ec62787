/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Memory and kernels of a small CUDA program, for beside.py. Each block has a size of its own, which a
 * line says: "alloc BYTES", "free BYTES"; at the end "sum X", which nobody may change.
 *
 *	clean		ROUNDS times both kernels; all blocks are freed but one
 *	broken		the same, and then one thread writes far beyond its block
 */
#include <cstdio>
#include <cstring>
#include <cuda_runtime.h>

enum { ROUNDS = 8, N = 1 << 16 };

__global__ void scale(float *x, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		x[i] = 2.0f * x[i] + 1.0f;
}

__global__ void add(float *x, const float *y, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		x[i] += y[i];
}

__global__ void write_beyond(float *x, long at)
{
	if (threadIdx.x == 0)
		x[at] = 1.0f;
}

static void check(cudaError_t error, const char *what)
{
	if (error == cudaSuccess)
		return;
	printf("%s: %s\n", what, cudaGetErrorString(error));
	fflush(stdout);
	_Exit(3);
}

static float *take(size_t bytes, bool of_stream)
{
	void *at = nullptr;

	check(of_stream ? cudaMallocAsync(&at, bytes, 0) : cudaMalloc(&at, bytes), "alloc");
	check(cudaMemset(at, 0, bytes), "set");
	printf("alloc %zu\n", bytes);
	return static_cast<float *>(at);
}

static void give_back(float *at, size_t bytes, bool of_stream)
{
	check(of_stream ? cudaFreeAsync(at, 0) : cudaFree(at), "free");
	printf("free %zu\n", bytes);
}

int main(int argc, char **argv)
{
	static float host[N];
	float *kept = take(3 << 20, false);
	double sum = 0;

	for (int i = 0; i < ROUNDS; i++) {
		size_t one = (1 << 20) + 4096 * i, two = (1 << 19) + 4096 * i;
		float *x = take(one, false), *y = take(two, true);

		scale<<<N / 256, 256>>>(x, N);
		add<<<N / 256, 256>>>(kept, x, N);
		check(cudaDeviceSynchronize(), "kernels");
		give_back(y, two, true);
		give_back(x, one, false);
	}
	check(cudaMemcpy(host, kept, sizeof(host), cudaMemcpyDeviceToHost), "copy");
	for (float each : host)
		sum += each;
	printf("sum %.1f\n", sum);
	fflush(stdout);
	if (argc > 1 && !strcmp(argv[1], "broken")) {
		write_beyond<<<1, 32>>>(kept, 1L << 28);
		printf("broken: %s\n", cudaGetErrorString(cudaDeviceSynchronize()));
	}
	return 0;
}
