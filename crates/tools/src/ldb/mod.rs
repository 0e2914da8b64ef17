//! `karstdb ldb`: RocksDB's ldb. Arguments are ldb's; the output of scan, dump, get, multi_get,
//! idump, dump_wal and manifest_dump is, byte for byte, that of ldb.

pub(crate) mod arguments;
mod copies;
mod data;
pub(crate) mod live_files;
pub(crate) mod manifest;
mod repair;
mod ttl;
pub(crate) mod wal;
mod write;

use crate::output::{Fault, Out, say};
use crate::text::Form;
use arguments::Arguments;
use karst_format::options::nearest;
use std::io::Write;
use std::path::{Path, PathBuf};

const HELP: &str = "karstdb ldb --db=PATH COMMAND [--OPTION[=VALUE] ...]

  scan [--from=KEY] [--to=KEY] [--max_keys=N] [--no_value]
       [--timestamp] [--start_time=SECONDS] [--end_time=SECONDS]
  dump [--from=KEY] [--to=KEY] [--max_keys=N] [--count_only] [--count_delim[=C]] [--stats]
       [--timestamp] [--start_time=SECONDS] [--end_time=SECONDS] [--bucket=SECONDS]
  get KEY
  multi_get KEY [KEY ...]
  idump [--from=KEY] [--to=KEY] [--max_keys=N] [--count_only] [--input_key_hex]
  put KEY VALUE [--create_if_missing]
  batchput KEY VALUE [KEY VALUE ...] [--create_if_missing]
  delete KEY
  singledelete KEY
  deleterange BEGIN END
  load [--create_if_missing] [--disable_wal] [--bulk_load] [--compact]
                           lines `KEY ==> VALUE`, as dump prints them, from standard input
  write_extern_sst FILE    lines as for load, in key order, into a table file with the database's options
  ingest_extern_sst FILE [--move_files] [--snapshot_consistency=false] [--allow_global_seqno=false]
                         [--allow_blocking_flush=false] [--ingest_behind] [--create_if_missing]
  compact [--from=KEY] [--to=KEY]
  create_column_family NAME
  drop_column_family NAME
  list_column_families
  checkconsistency
  manifest_dump [--path=MANIFEST] [--verbose]
  dump_wal --walfile=FILE [--header] [--print_value]
  dump_live_files
  list_live_files_metadata [--sort_by_filename]
  list_file_range_deletes [--max_keys=N]
                           range tombstones in table files
  get_property NAME
  approxsize --from=KEY --to=KEY
                           approximate bytes of files that these keys take up
  repair                   makes a database of all readable files; unreadable files are moved to lost/
  unsafe_remove_sst_file NUMBER
                           removes a table from the tree, for a database that does not open because of it
  checkpoint --checkpoint_dir=DIRECTORY
  backup --backup_dir=DIRECTORY [--num_threads=N]
  restore --backup_dir=DIRECTORY [--num_threads=N]
                           restores the database from the latest backup

  --column_family=NAME     the command's column family; default: default
  --secondary_path=DIRECTORY
                           scan, dump, get, multi_get and idump read as a secondary instance, which writes its LOG there
  --ttl                    put, batchput, get, multi_get, scan and dump: values end with the time of their
                           write; --timestamp prints it, --start_time and --end_time select values by it
  --hex, --key_hex, --value_hex
                           keys and values are given and printed as 0x6B31
  --try_load_options=false do not read the OPTIONS file
  --ignore_unknown_options accept an OPTIONS file with unknown options
  --damaged_options=use_older|ignore
                           if the newest OPTIONS file cannot be used: take the newest older one, or none
  --db_paths=DIRECTORY[:BYTES],...
                           directories of tables besides the database's; no file of the database records them
  --cf_paths=FAMILY=DIRECTORY[:BYTES],...[;FAMILY=...]
                           directories of tables, by column family

Commands that write also take options of the database: --bloom_bits, --fix_prefix_len, --compression_type,
--compression_max_dict_bytes, --block_size, --auto_compaction, --db_write_buffer_size, --write_buffer_size, --file_size,
--enable_blob_files, --min_blob_size, --blob_file_size, --blob_compression_type, --enable_blob_garbage_collection,
--blob_garbage_collection_age_cutoff, --blob_garbage_collection_force_threshold, --disable_consistency_checks
";

/// Runs the program with the arguments after `ldb`.
pub(crate) fn run(args: &[String]) -> Result<(), Fault> {
    let mut args = Arguments::parse(args);
    if args.take_help()? {
        return say!("{}", HELP.trim_end());
    }
    let Some(command) = args.take_word() else {
        return Err(Fault::Usage(format!("which command?\n\n{HELP}")));
    };
    args.take_opening()?;
    let mut out = Out::new();
    let result = match command.as_str() {
        "scan" => data::scan(args, &mut out),
        "dump" => data::dump(args, &mut out),
        "get" => data::get(args, &mut out),
        "multi_get" => data::multi_get(args, &mut out),
        "idump" => data::idump(args, &mut out),
        "put" => write::put(args, &mut out),
        "batchput" => write::batchput(args, &mut out),
        "delete" => write::delete(args, false, &mut out),
        "singledelete" => write::delete(args, true, &mut out),
        "deleterange" => write::deleterange(args, &mut out),
        "load" => write::load(args, &mut out),
        "write_extern_sst" => write::write_extern_sst(args, &mut out),
        "ingest_extern_sst" => write::ingest_extern_sst(args, &mut out),
        "compact" => write::compact(args, &mut out),
        "create_column_family" => write::create_column_family(args, &mut out),
        "drop_column_family" => write::drop_column_family(args, &mut out),
        "list_column_families" => data::list_column_families(args, &mut out),
        "checkconsistency" => data::check_consistency(args, &mut out),
        "manifest_dump" => manifest_dump(args, &mut out),
        "dump_wal" => dump_wal(args, &mut out),
        "checkpoint" => copies::checkpoint(args, &mut out),
        "backup" => copies::backup(args, &mut out),
        "restore" => copies::restore(args, &mut out),
        "repair" => repair::repair(args, &mut out),
        "unsafe_remove_sst_file" => repair::unsafe_remove_sst_file(args, &mut out),
        "list_file_range_deletes" => repair::list_file_range_deletes(args, &mut out),
        "list_live_files_metadata" => repair::list_live_files_metadata(args, &mut out),
        "get_property" => repair::get_property(args, &mut out),
        "approxsize" => repair::approxsize(args, &mut out),
        "dump_live_files" => live_files::dump(args, &mut out),
        other => Err(unknown_command(other)),
    };
    out.end(result)
}

fn unknown_command(name: &str) -> Fault {
    // The help has a line for each command, which begins with its name.
    let lines = HELP.lines().filter_map(|line| line.strip_prefix("  "));
    let names = lines.filter_map(|line| line.split(' ').next()).filter(|word| !word.starts_with('-'));
    Fault::Usage(match nearest(name, names) {
        Some(near) => format!("ldb has no command `{name}`; did you mean `{near}`?"),
        None => format!("ldb has no command `{name}`; `karstdb ldb --help` lists them"),
    })
}

fn manifest_dump(mut args: Arguments, out: &mut impl Write) -> Result<(), Fault> {
    let form = Form::hex_if(args.take_flag("hex")? || args.take_flag("key_hex")?);
    let verbose = args.take_flag("verbose")?;
    let path = match args.take_value("path") {
        Some(path) => {
            args.take_value("db");
            PathBuf::from(path)
        }
        None => manifest::current(Path::new(&data::take_db(&mut args)?))?,
    };
    args.finish("manifest_dump")?;
    let edits = manifest::edits(&path)?;
    if verbose {
        writeln!(out, "Processing Manifest file {}", path.display()).map_err(data::failed)?;
        for edit in &edits {
            manifest::write_edit(out, edit, form).map_err(data::failed)?;
        }
    }
    manifest::write_state(out, &manifest::replay(&path, &edits)?, form).map_err(data::failed)
}

fn dump_wal(mut args: Arguments, out: &mut impl Write) -> Result<(), Fault> {
    args.take_value("db");
    let path =
        args.take_value("walfile").ok_or_else(|| Fault::Usage("dump_wal needs --walfile=FILE".into()))?;
    let header = args.take_flag("header")?;
    let values = args.take_flag("print_value")?;
    args.finish("dump_wal")?;
    wal::dump(out, Path::new(&path), header, values)
}
