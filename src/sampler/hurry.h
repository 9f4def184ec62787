/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * To run when it is time to. A sampler that waits until a busy thread leaves its processor sees
 * that thread only where it rests: functions that compute would seem to take no time.
 */
#ifndef SONDE_SAMPLER_HURRY_H
#define SONDE_SAMPLER_HURRY_H

/*
 * From here on the calling thread is let in front of others, for which it has to be content with
 * short turns. Needs no permission; kernels before 6.12 take no notice, and other policies than the
 * usual one stay. Threads and processes that it starts do not inherit it.
 */
void sampler_hurry(void);

#endif
