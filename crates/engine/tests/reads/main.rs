//! Reads: lookups, batches, scans, and reads at timestamps.

mod blob_scans;
mod deadline;
mod dropped;
mod large;
mod large_batches;
mod many_versions;
mod prefix_opt_in;
mod protection;
mod round_trips;
mod scan_ldb;
mod scan_requests;
mod table_filter;
mod table_metadata;
mod timestamps;
mod warm_cache;
