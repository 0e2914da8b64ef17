//! The file of `--config`: options of the command line by their names, settings of CONFIG SET, and
//! users.

use super::command;
use crate::output::Fault;
use clap::{ArgAction, ArgMatches};
use karst_server::{ConfigLine, ServerOptions, parse_config};
use std::path::Path;

/// Contents of a configuration file.
pub(super) struct Config {
    /// Options of the command line.
    pub(super) options: ArgMatches,
    /// Settings by the names of CONFIG SET, and their values.
    pub(super) settings: Vec<(String, Vec<u8>)>,
    /// Words of users, as [`ServerOptions::users`] has them.
    pub(super) users: Vec<Vec<Vec<u8>>>,
}

/// Options that are for the command line only.
const NOT_IN_FILES: [&str; 3] = ["config", "help", "DB"];

/// Reads the file.
pub(super) fn read(path: &Path) -> Result<Config, Fault> {
    let text =
        std::fs::read(path).map_err(|error| Fault::Usage(format!("--config {}: {error}", path.display())))?;
    of_text(&text).map_err(|why| Fault::Usage(format!("--config {}: {why}", path.display())))
}

/// A file without lines.
pub(super) fn empty() -> Config {
    of_text(b"").unwrap_or_else(|why| unreachable!("no line is wrong: {why}"))
}

fn of_text(text: &[u8]) -> Result<Config, String> {
    let (mut arguments, mut settings, mut users) = (Vec::new(), Vec::new(), Vec::new());
    for line in parse_config(text)? {
        let wrong = |why: &str| format!("line {}: {}: {why}", line.number, line.name);
        if line.name == "user" {
            users.push(line.words);
        } else if let Some(argument) = argument(&line).map_err(|why| wrong(&why))? {
            let check = command().try_get_matches_from(argument.as_deref().into_iter().fold(argv(), and));
            check.map_err(|error| wrong(first_line(&error.to_string())))?;
            arguments.extend(argument);
        } else {
            let value = line.value();
            ServerOptions::check_setting(&line.name, &value).map_err(wrong)?;
            settings.push((line.name, value));
        }
    }
    let all = command()
        .args_override_self(true)
        .try_get_matches_from(arguments.iter().map(String::as_str).fold(argv(), and));
    let options = all.map_err(|error| first_line(&error.to_string()).to_owned())?;
    Ok(Config { options, settings, users })
}

/// The beginning of a command line.
fn argv() -> Vec<String> {
    vec!["serve".to_owned(), "DB".to_owned()]
}

fn and(mut all: Vec<String>, one: &str) -> Vec<String> {
    all.push(one.to_owned());
    all
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default().trim_start_matches("error: ")
}

/// The argument of the command line that a line stands for, if it is the name of an option: none
/// for a switch that is `no`.
fn argument(line: &ConfigLine) -> Result<Option<Option<String>>, String> {
    let definition = command();
    let found = definition.get_arguments().find(|arg| arg.get_id() == line.name.as_str());
    let Some(arg) = found.filter(|arg| !NOT_IN_FILES.contains(&arg.get_id().as_str())) else {
        return Ok(None);
    };
    let value = String::from_utf8(line.value()).map_err(|_| "argument must be UTF-8")?;
    match (arg.get_action(), &*value) {
        (ArgAction::SetTrue, "yes") => Ok(Some(Some(format!("--{}", line.name)))),
        (ArgAction::SetTrue, "no") => Ok(Some(None)),
        (ArgAction::SetTrue, _) => Err("argument must be 'yes' or 'no'".to_owned()),
        _ => Ok(Some(Some(format!("--{}={value}", line.name)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_options_settings_and_users() {
        let text = b"threads 3\nPin yes\nenable-debug-command no\nlisten 127.0.0.1:1\nlisten 127.0.0.1:2\n\
                    threads 4\ntimeout 5\nuser me on >pw\nuser you off\n";
        let config = of_text(text).unwrap();
        assert_eq!(config.options.get_one::<u16>("threads"), Some(&4));
        assert!(config.options.get_flag("pin") && !config.options.get_flag("enable-debug-command"));
        let listen: Vec<_> = config.options.get_many::<String>("listen").unwrap().collect();
        assert_eq!(listen, ["127.0.0.1:1", "127.0.0.1:2"]);
        assert_eq!(config.settings, [("timeout".to_owned(), b"5".to_vec())]);
        let users: [&[&str]; 2] = [&["me", "on", ">pw"], &["you", "off"]];
        assert_eq!(
            config.users,
            users.map(|words| words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>())
        );
    }

    #[test]
    fn a_wrong_line_is_told_with_its_number() {
        let cases = [
            ("\nnothing 1", "line 2: nothing: there is no such setting"),
            ("config a", "line 1: config: there is no such setting"),
            ("timeout -1", "line 1: timeout: argument must be between 0 and 2147483647 inclusive"),
            ("pin maybe", "line 1: pin: argument must be 'yes' or 'no'"),
            ("timeout", "line 1: 'timeout' has no value"),
        ];
        for (text, why) in cases {
            assert_eq!(of_text(text.as_bytes()).err().as_deref(), Some(why), "{text}");
        }
        assert!(of_text(b"threads many").is_err_and(|why| why.starts_with("line 1: threads: invalid value")));
    }
}
