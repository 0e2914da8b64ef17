//! Files, clocks, threads and the asynchronous I/O channel.
