//! What Steward reads from and writes to the kernel, without opinion.
