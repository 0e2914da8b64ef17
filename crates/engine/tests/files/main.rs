//! Files that are added, removed or verified: copies, ingest, bulk loads, clips, repair, paths.

mod bulk_loader;
mod bulk_loads;
mod cf_paths;
mod clip;
mod copies;
mod db_paths;
mod file_checksums;
mod ingest;
mod repair;
mod sst_file_manager;
mod verify;
