/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Names of the CANN modules that allocate from the driver, by the id in the flag word. */
#ifndef SONDE_DEVICE_ASCEND_MODULES_H
#define SONDE_DEVICE_ASCEND_MODULES_H

#include <stdint.h>

/* UNKNOWN for an id that is not in the table. */
const char *ascend_module_name(uint8_t id);

#endif
