/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What a frame is called wherever stacks are drawn: "Trainer.step (app/train.py:41)". */
#ifndef SONDE_FORMATS_FRAME_LABEL_H
#define SONDE_FORMATS_FRAME_LABEL_H

#include <stdint.h>

#define FRAME_LABEL_BYTES 512

/*
 * The function, and the last two parts of its file: enough to know it by, short enough for a box on
 * a screen. No line if it is 0; the function alone if the file is "". Cut where it is too long.
 */
void frame_label(char out[FRAME_LABEL_BYTES], const char *name, const char *file, int32_t line);

#endif
