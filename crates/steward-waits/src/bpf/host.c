/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What can be tried without a kernel, for the tests. */
#include <stdbool.h>

#include "journal.h"

bool waits_is_journal_name(const char name[TASK_NAME_BYTES])
{
	return is_journal_name(name);
}
