//! `karstdb sst_dump`: RocksDB's sst_dump: check, scan, raw, verify, identify, and
//! --show_properties.
//!
//! The entries that `scan` prints are, byte for byte, those of sst_dump.

use crate::ldb::arguments::Arguments;
use crate::output::{Fault, Out, cannot_write, say};
use crate::table_file::TableFile;
use crate::text::{Form, write_bare, write_entry};
use karst_engine::properties::table_properties_text;
use karst_format::file_name::FileName;
use karst_format::handle::BlockHandle;
use karst_format::key;
use karst_format::options::nearest;
use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

const HELP: &str =
    "karstdb sst_dump --file=TABLE_OR_DIRECTORY [--command=check|scan|raw|verify|identify|none] [--OPTION ...]

  check      iterate over every entry (the default)
  scan       print every entry
  raw        write the whole contents of the file to NAME_dump.txt
  verify     verify the checksum of every block
  identify   list the files that are tables
  none       open only; for --show_properties

  --from=KEY, --to=KEY, --prefix=KEY, --read_num=N    selection of entries, for check and scan
  --input_key_hex                                     keys are given as 0x6B31
  --output_hex                                        keys and values are printed as hex
  --show_properties                                   print the table's properties
  --dump_dir=DIRECTORY                                directory of raw's output; default: the file's directory
";

const COMMANDS: [&str; 6] = ["check", "scan", "raw", "verify", "identify", "none"];

/// Selection of entries.
struct Selection {
    from: Option<Vec<u8>>,
    to: Option<Vec<u8>>,
    prefix: Option<Vec<u8>>,
    most: u64,
    form: Form,
}

/// Runs the program with the arguments after `sst_dump`.
pub(crate) fn run(args: &[String]) -> Result<(), Fault> {
    let mut args = Arguments::parse(args);
    if args.take_help()? {
        return say!("{}", HELP.trim_end());
    }
    let file = args
        .take_value("file")
        .ok_or_else(|| Fault::Usage("--file must be given; see `karstdb sst_dump --help`".into()))?;
    let command = args.take_value("command").unwrap_or_else(|| "check".into());
    let input = Form::hex_if(args.take_flag("input_key_hex")?);
    let selection = Selection {
        from: args.take_key("from", input)?,
        to: args.take_key("to", input)?,
        prefix: args.take_key("prefix", input)?,
        most: args.take_number("read_num")?.unwrap_or(u64::MAX),
        form: Form::hex_if(args.take_flag("output_hex")?),
    };
    let show_properties = args.take_flag("show_properties")?;
    // Blocks are always verified here.
    args.take_flag("verify_checksum")?;
    let dump_dir = args.take_value("dump_dir").map(PathBuf::from);
    args.finish("sst_dump")?;
    if !COMMANDS.contains(&command.as_str()) {
        return Err(Fault::Usage(match nearest(&command, COMMANDS) {
            Some(near) => format!("--command={command}: did you mean {near}?"),
            None => format!("--command={command} is none of {}", COMMANDS.join(", ")),
        }));
    }
    let mut out = Out::new();
    let mut failed = Vec::new();
    for path in tables(Path::new(&file))? {
        let done = one_file(&mut out, &path, &command, &selection, show_properties, dump_dir.as_deref());
        if let Err(message) = done {
            failed.push(message);
        }
    }
    out.end(if failed.is_empty() { Ok(()) } else { Err(failed.join("\n").into()) })
}

/// Returns the table itself, or the tables in a directory, sorted by name.
fn tables(path: &Path) -> Result<Vec<PathBuf>, String> {
    let at = |e: std::io::Error| format!("{}: {e}", path.display());
    if !fs::metadata(path).map_err(at)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(path).map_err(at)? {
        let entry = entry.map_err(at)?;
        let name = entry.file_name();
        if let Some(FileName::Table(_) | FileName::LevelDbTable(_)) = name.to_str().and_then(FileName::parse)
        {
            found.push(entry.path());
        }
    }
    found.sort();
    if found.is_empty() { Err(format!("{}: there are no tables here", path.display())) } else { Ok(found) }
}

fn one_file(
    out: &mut impl Write,
    path: &Path,
    command: &str,
    selection: &Selection,
    show_properties: bool,
    dump_dir: Option<&Path>,
) -> Result<(), String> {
    let table = TableFile::open(path)?;
    writeln!(out, "Process {}\nSst file format: block-based", path.display()).map_err(cannot_write)?;
    match command {
        "identify" => writeln!(out, "{} is a valid SST file", path.display()).map_err(cannot_write)?,
        "verify" => {
            table.verify()?;
            writeln!(out, "The file is ok").map_err(cannot_write)?;
        }
        "check" | "scan" => {
            writeln!(out, "from [{}] to [{}]", shown(&selection.from), shown(&selection.to))
                .map_err(cannot_write)?;
            let count = entries(&table, selection, |key, value| {
                if command == "scan" {
                    write_entry(out, key, value, selection.form).map_err(cannot_write)?;
                }
                Ok(())
            })?;
            let whole = selection.from.is_none() && selection.to.is_none() && selection.prefix.is_none();
            let points = table.properties.num_entries.saturating_sub(table.properties.num_range_deletions);
            if whole && selection.most == u64::MAX && count != points {
                return Err(format!(
                    "{}: {count} entries, but the properties say {points} besides range deletions",
                    path.display()
                ));
            }
        }
        "raw" => {
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            let dir = dump_dir.or(path.parent()).unwrap_or(Path::new("."));
            let target = dir.join(format!("{name}_dump.txt"));
            let file = fs::File::create(&target).map_err(|e| format!("{}: {e}", target.display()))?;
            let mut dump = BufWriter::new(file);
            raw(&mut dump, &table)?;
            dump.flush().map_err(|e| format!("{}: {e}", target.display()))?;
            writeln!(out, "raw dump written to file {}", target.display()).map_err(cannot_write)?;
        }
        _ => {}
    }
    if show_properties {
        let line = "------------------------------";
        write!(out, "Table Properties:\n{line}\n  ").map_err(cannot_write)?;
        out.write_all(properties_text(&table).as_bytes()).map_err(cannot_write)?;
        writeln!(out, "Raw user collected properties\n{line}").map_err(cannot_write)?;
        for (name, value) in &table.properties.user_collected {
            write!(out, "  # {}: 0x", name.escape_ascii()).map_err(cannot_write)?;
            write_bare(out, value, Form::Hex).map_err(cannot_write)?;
            writeln!(out).map_err(cannot_write)?;
        }
    }
    Ok(())
}

/// Returns the properties, one per line, indented like those of sst_dump.
pub(crate) fn properties_text(table: &TableFile) -> String {
    table_properties_text(&table.properties, "\n  ", ": ")
}

fn shown(key: &Option<Vec<u8>>) -> String {
    key.as_deref().map(|k| k.escape_ascii().to_string()).unwrap_or_default()
}

/// Calls `entry` for every entry of the selection. Returns their number.
fn entries(
    table: &TableFile,
    selection: &Selection,
    mut entry: impl FnMut(&[u8], &[u8]) -> Result<(), String>,
) -> Result<u64, String> {
    let comparator = table.comparator()?;
    let from = selection.from.as_ref().or(selection.prefix.as_ref());
    let mut count = 0;
    for row in table.index_rows()? {
        if from.is_some_and(|from| comparator.compare_user(&row.separator, from).is_lt()) {
            continue;
        }
        let more = table.block_entries(row.handle, |key, value| {
            let user_key = key::user_key(key);
            if from.is_some_and(|from| comparator.compare_user(user_key, from).is_lt()) {
                return Ok(true);
            }
            let behind =
                selection.to.as_ref().is_some_and(|to| comparator.compare_user(user_key, to).is_ge())
                    || selection.prefix.as_ref().is_some_and(|prefix| !user_key.starts_with(prefix));
            if behind || count >= selection.most {
                return Ok(false);
            }
            count += 1;
            entry(key, value).map(|()| true)
        })?;
        if !more {
            break;
        }
    }
    Ok(count)
}

/// Prints footer, metaindex, properties, index and every data block, in hex and in ASCII.
fn raw(out: &mut impl Write, table: &TableFile) -> Result<(), String> {
    let line = "--------------------------------------";
    let footer = &table.footer;
    let mut text = format!("Footer Details:\n{line}\n");
    text += &format!("  metaindex handle: {}\n", handle_text(footer.metaindex_handle));
    if let Some(handle) = footer.index_handle {
        text += &format!("  index handle: {}\n", handle_text(handle));
    }
    text += &format!("  format version: {}\n  checksum: {:?}\n", footer.format_version, footer.checksum);
    text += &format!("\nMetaindex Details:\n{line}\n");
    for (name, handle) in table.metaindex.iter() {
        text += &format!("  {}: {}\n", name.escape_ascii(), handle_text(handle));
    }
    text += &format!("\nTable Properties:\n{line}\n  {}\n", properties_text(table));
    text +=
        &format!("Index Details:\n{line}\n  Block key hex dump: Data block handle\n  Block key ascii\n\n");
    out.write_all(text.as_bytes()).map_err(cannot_write)?;
    let rows = table.index_rows()?;
    for row in &rows {
        write_hex_and_ascii(out, &row.separator, handle_text(row.handle).as_bytes(), None)
            .map_err(cannot_write)?;
    }
    for (number, row) in rows.iter().enumerate() {
        let compression = table.block_compression(row.handle)?;
        writeln!(
            out,
            "\nData Block # {} @ {} ({})\n{line}",
            number + 1,
            handle_text(row.handle),
            compression.name()
        )
        .map_err(cannot_write)?;
        table.block_entries(row.handle, |key, value| {
            let mut hex = Vec::new();
            write_bare(&mut hex, value, Form::Hex).map_err(cannot_write)?;
            write_hex_and_ascii(out, key, &hex, Some(value)).map_err(cannot_write)?;
            Ok(true)
        })?;
    }
    writeln!(out, "\nRange deletions:\n{line}").map_err(cannot_write)?;
    table.range_tombstones(|key, end| {
        let mut hex = Vec::new();
        write_bare(&mut hex, end, Form::Hex).map_err(cannot_write)?;
        write_hex_and_ascii(out, key, &hex, Some(end)).map_err(cannot_write)
    })
}

/// Returns offset and size, in bytes.
fn handle_text(handle: BlockHandle) -> String {
    format!("offset {} size {}", handle.offset, handle.size)
}

fn write_hex_and_ascii(
    out: &mut impl Write,
    key: &[u8],
    value_text: &[u8],
    value: Option<&[u8]>,
) -> std::io::Result<()> {
    out.write_all(b"  HEX    ")?;
    write_bare(out, key, Form::Hex)?;
    out.write_all(b": ")?;
    out.write_all(value_text)?;
    write!(out, "\n  ASCII  {}", key.escape_ascii())?;
    if let Some(value) = value {
        write!(out, " : {}", value.escape_ascii())?;
    }
    out.write_all(b"\n  ------\n")
}
