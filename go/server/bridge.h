/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What Go cannot say to C: functions of its own as arguments. */

#include <stdint.h>

#include "steward_server.h"

int steward_server_bridge_log(void);
int steward_server_bridge_serve(const struct steward_server *server, size_t route, uintptr_t handle,
				uint64_t *retry_after_ns);
