/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The decision headers as functions of the host, for tests and for the simulator. */
#include "edf.h"
