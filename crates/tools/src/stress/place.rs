//! Paths of a stressed database and of the files beside it, and the lines that a life prints for
//! the watching process.

use super::options::FrontKind;
use super::rows::{STAMPED_FAMILY, Shape};
use std::io;
use std::path::{Path, PathBuf};

/// Returns the paths beside the database that begin with its name and `suffix`, each with the rest
/// of its name.
pub(crate) fn all_beside(db: &Path, suffix: &str) -> io::Result<Vec<(PathBuf, String)>> {
    let prefix = beside(db, suffix);
    let prefix = prefix.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let parent = db.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut found = Vec::new();
    for entry in std::fs::read_dir(parent)? {
        let entry = entry?;
        if let Some(rest) = entry.file_name().to_string_lossy().strip_prefix(&prefix) {
            found.push((entry.path(), rest.to_owned()));
        }
    }
    Ok(found)
}

/// Removes a directory that may hold a database. CURRENT goes first, because a kill in the middle
/// must not leave a database without some of its files.
pub(crate) fn remove_database(directory: &Path) -> io::Result<()> {
    match std::fs::remove_file(directory.join("CURRENT")) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => std::fs::remove_dir_all(directory),
    }
}

/// Returns the path of the database with a suffix. Paths with a suffix that begins with `.copy-`
/// are removed at the beginning of a life.
pub(crate) fn beside(db: &Path, name: &str) -> PathBuf {
    let mut path = db.as_os_str().to_owned();
    path.push(name);
    path.into()
}

/// The database and the folder of its expected state.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) db: PathBuf,
    pub(crate) expected: PathBuf,
}

impl Site {
    /// File with the message of the last life that failed.
    pub(crate) fn failure(&self) -> PathBuf {
        self.expected.join("failure")
    }

    /// File with the drawn options of a life.
    pub(crate) fn options_of(&self, life: u64) -> PathBuf {
        self.expected.join(format!("life-{life:04}.options"))
    }

    fn shape_file(&self) -> PathBuf {
        self.expected.join("shape")
    }

    /// Returns true if an expected state exists.
    pub(crate) fn exists(&self) -> bool {
        self.shape_file().exists()
    }

    /// Returns the shape that the database was made with.
    pub(crate) fn shape(&self) -> Result<Shape, String> {
        let path = self.shape_file();
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let numbers: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [seed, families, lanes, rows] = numbers[..] else {
            return Err(format!(
                "{}: the file does not describe the expected state of a database",
                path.display()
            ));
        };
        Ok(Shape { seed, families: families as usize, lanes: lanes as usize, rows: rows as usize })
    }

    pub(crate) fn note_shape(&self, shape: &Shape) -> io::Result<()> {
        std::fs::create_dir_all(&self.expected)?;
        let Shape { seed, families, lanes, rows } = shape;
        let text = format!("seed {seed} families {families} lanes {lanes} rows {rows}\n");
        replace(&self.shape_file(), &text)
    }

    /// Returns true if a family of the database has timestamps, which is fixed when the database is
    /// made.
    pub(crate) fn has_timestamps(&self) -> bool {
        self.expected.join(STAMPED_FAMILY).exists()
    }

    pub(crate) fn note_timestamps(&self) -> io::Result<()> {
        std::fs::create_dir_all(&self.expected)?;
        std::fs::write(self.expected.join(STAMPED_FAMILY), "")
    }

    /// Returns the kind of transactions with which the database was last open.
    pub(crate) fn front(&self) -> Option<FrontKind> {
        FrontKind::named(std::fs::read_to_string(self.expected.join("front")).ok()?.trim())
    }

    pub(crate) fn note_front(&self, front: FrontKind) -> io::Result<()> {
        replace(&self.expected.join("front"), front.name())
    }

    /// Returns the number of the next life.
    pub(crate) fn next_life(&self) -> u64 {
        let text = std::fs::read_to_string(self.expected.join("lives")).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    pub(crate) fn note_next_life(&self, life: u64) -> io::Result<()> {
        replace(&self.expected.join("lives"), &life.to_string())
    }
}

/// Replaces a file so that it has the old or the new text whenever the process dies.
pub(crate) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    std::fs::write(&new, text)?;
    std::fs::rename(new, path)
}

/// Lines that a life prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProgressLine {
    /// The database is open; milliseconds that it took.
    Opened(u64),
    /// All counts so far.
    Counts(Vec<u64>),
    /// The life has ended in order.
    Ended,
}

impl ProgressLine {
    pub(crate) fn line(&self) -> String {
        match self {
            ProgressLine::Opened(milliseconds) => format!("opened {milliseconds}"),
            ProgressLine::Counts(numbers) => {
                let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
                format!("counts {}", numbers.join(" "))
            }
            ProgressLine::Ended => "ended".into(),
        }
    }

    /// Returns `None` for a line that a killed life did not complete, and for other text.
    pub(crate) fn parse(line: &str) -> Option<ProgressLine> {
        let mut words = line.split(' ');
        let said = words.next()?;
        let numbers: Vec<u64> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
        match (said, &numbers[..]) {
            ("opened", [milliseconds]) => Some(ProgressLine::Opened(*milliseconds)),
            ("counts", [_, ..]) => Some(ProgressLine::Counts(numbers)),
            ("ended", []) => Some(ProgressLine::Ended),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_back() {
        for report in [ProgressLine::Opened(12), ProgressLine::Counts(vec![1, 0, 3]), ProgressLine::Ended] {
            assert_eq!(ProgressLine::parse(&report.line()), Some(report));
        }
        assert_eq!(ProgressLine::parse("cou"), None);
        assert_eq!(ProgressLine::parse("opened x"), None);
    }

    #[test]
    fn what_is_noted_is_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let place = Site { db: dir.path().join("db"), expected: dir.path().join("db.expected") };
        assert!(!place.exists() && place.front().is_none() && place.next_life() == 0);
        let shape = Shape { seed: 5, families: 4, lanes: 3, rows: 256 };
        place.note_shape(&shape).unwrap();
        place.note_front(FrontKind::WritePrepared).unwrap();
        place.note_next_life(7).unwrap();
        assert_eq!(place.shape(), Ok(shape));
        assert_eq!((place.front(), place.next_life()), (Some(FrontKind::WritePrepared), 7));
    }
}
