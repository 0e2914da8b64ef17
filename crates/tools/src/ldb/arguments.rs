//! ldb's command line: `--name=value`, `--flag`, and words, in any order; the first word is the
//! command.

use crate::output::Fault;
use crate::paths::with_paths;
use crate::text::{Form, parse_bytes};
use karst_engine::Options;
use std::collections::BTreeMap;

/// A parsed command line. Each `take_` call consumes an argument; [`Arguments::finish`] refuses the
/// rest.
#[derive(Debug, Default)]
pub(crate) struct Arguments {
    values: BTreeMap<String, String>,
    flags: Vec<String>,
    words: std::collections::VecDeque<String>,
    /// Options for opening the database that all commands share; see [`Arguments::take_opening`].
    pub(crate) opening: Options,
}

impl Arguments {
    pub(crate) fn parse(args: &[String]) -> Arguments {
        let mut parsed = Arguments::default();
        for arg in args {
            match arg.strip_prefix("--") {
                None => parsed.words.push_back(arg.clone()),
                Some(body) => match body.split_once('=') {
                    Some((name, value)) => {
                        parsed.values.insert(name.to_string(), value.to_string());
                    }
                    None => parsed.flags.push(body.to_string()),
                },
            }
        }
        parsed
    }

    /// Returns the next word.
    pub(crate) fn take_word(&mut self) -> Option<String> {
        self.words.pop_front()
    }

    /// Returns all remaining words.
    pub(crate) fn take_words(&mut self) -> Vec<String> {
        self.words.drain(..).collect()
    }

    /// Returns the value of `--name=value`.
    pub(crate) fn take_value(&mut self, name: &str) -> Option<String> {
        self.values.remove(name)
    }

    /// Returns true if help was requested. No command takes `-h` as a word; a key of this name is
    /// given in hex.
    pub(crate) fn take_help(&mut self) -> Result<bool, Fault> {
        Ok(self.take_flag("help")? || self.words.iter().any(|word| word == "-h"))
    }

    /// Returns true if `--name` or `--name=true` was given.
    pub(crate) fn take_flag(&mut self, name: &str) -> Result<bool, Fault> {
        let given = self.flags.iter().any(|f| f == name);
        self.flags.retain(|f| f != name);
        match self.values.remove(name).as_deref() {
            None => Ok(given),
            Some("true") => Ok(true),
            Some("false") => Ok(false),
            Some(other) => {
                Err(Fault::Usage(format!("--{name} has a value that is neither true nor false: {other}")))
            }
        }
    }

    /// Takes the arguments about the OPTIONS file: `--try_load_options=false`,
    /// `--ignore_unknown_options`, `--damaged_options=use_older|ignore`; and about directories of
    /// tables: `--db_paths`, `--cf_paths`.
    ///
    /// Compat: ldb ignores the file unless `--try_load_options` is given; here it is read unless
    /// that is false.
    pub(crate) fn take_opening(&mut self) -> Result<(), Fault> {
        let without = self.values.get("try_load_options").is_some_and(|value| value == "false");
        self.take_flag("try_load_options")?;
        let unknown = self.take_flag("ignore_unknown_options")?;
        self.opening = Options::new().ignore_options_file(without).ignore_unknown_options(unknown);
        if let Some(choice) = self.take_value("damaged_options") {
            let misused = |e: karst_engine::Error| Fault::Usage(format!("--{}", e.context()));
            let choice = choice.parse().map_err(misused)?;
            self.opening = self.opening.clone().damaged_options(choice);
        }
        let (db_paths, cf_paths) = (self.take_value("db_paths"), self.take_value("cf_paths"));
        self.opening = with_paths(self.opening.clone(), db_paths.as_deref(), cf_paths.as_deref())?;
        Ok(())
    }

    /// Returns the number of `--name=N`.
    pub(crate) fn take_number<T: std::str::FromStr>(&mut self, name: &str) -> Result<Option<T>, Fault> {
        match self.values.remove(name) {
            None => Ok(None),
            Some(text) => {
                let misused = |_| Fault::Usage(format!("--{name} has an invalid value: {text}"));
                text.parse().map(Some).map_err(misused)
            }
        }
    }

    /// Returns the forms of keys and of values: `--hex`, `--key_hex`, `--value_hex`.
    pub(crate) fn take_forms(&mut self) -> Result<(Form, Form), Fault> {
        let both = self.take_flag("hex")?;
        let key = self.take_flag("key_hex")? || both;
        let value = self.take_flag("value_hex")? || both;
        Ok((Form::hex_if(key), Form::hex_if(value)))
    }

    /// Returns the key of `--name=KEY`, in hex if keys are.
    pub(crate) fn take_key(&mut self, name: &str, form: Form) -> Result<Option<Vec<u8>>, Fault> {
        self.values.remove(name).map(|text| parse_bytes(&text, form)).transpose().map_err(Fault::Usage)
    }

    /// Returns an error if any argument was not taken.
    pub(crate) fn finish(mut self, command: &str) -> Result<(), Fault> {
        let option = self.values.into_keys().chain(self.flags).next();
        match (option, self.words.pop_front()) {
            (Some(name), _) => Err(Fault::Usage(format!("{command} does not know --{name}"))),
            (None, Some(word)) => Err(Fault::Usage(format!("{command} takes no further word: {word}"))),
            (None, None) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_apart_and_refuses_the_rest() {
        let args: Vec<String> =
            ["--db=x=y", "scan", "--hex", "--max_keys=3", "w"].iter().map(|s| s.to_string()).collect();
        let mut a = Arguments::parse(&args);
        assert_eq!(a.take_word().as_deref(), Some("scan"));
        assert_eq!(a.take_value("db").as_deref(), Some("x=y"));
        assert_eq!(a.take_number::<u64>("max_keys").unwrap(), Some(3));
        assert_eq!(a.take_forms().unwrap(), (Form::Hex, Form::Hex));
        assert_eq!(a.finish("scan"), Err(Fault::Usage("scan takes no further word: w".into())));
        let a = Arguments::parse(&["--nope".to_string()]);
        assert_eq!(a.finish("scan"), Err(Fault::Usage("scan does not know --nope".into())));
    }
}
