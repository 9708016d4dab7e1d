/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "bridge.h"

#include "_cgo_export.h"

static void say(const char *sentence)
{
	stewardServerSays((char *)sentence);
}

int steward_server_bridge_log(void)
{
	return steward_server_log(say);
}

int steward_server_bridge_serve(const struct steward_server *server, size_t route, uintptr_t handle,
				uint64_t *retry_after_ns)
{
	return steward_server_serve(server, route, stewardServerJob, (void *)handle, retry_after_ns);
}
