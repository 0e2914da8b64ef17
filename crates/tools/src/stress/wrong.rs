//! Mismatches and failures, which end a life, and their messages.

/// The mismatch or failure that ends a life.
#[derive(Debug)]
pub(crate) enum Wrong {
    /// The database lacks an entry that it must hold, or holds one that it must not.
    Mismatch(String),
    /// A call failed that must not fail.
    Failed(String),
}

impl From<std::io::Error> for Wrong {
    fn from(error: std::io::Error) -> Wrong {
        Wrong::Failed(format!("the files of the expected state: {error}"))
    }
}

impl Wrong {
    pub(crate) fn text(&self) -> String {
        match self {
            Wrong::Mismatch(text) => format!("mismatch {text}"),
            Wrong::Failed(text) => text.clone(),
        }
    }
}

/// Returns a value for a message: a number as decimal, other bytes escaped up to a limit.
pub(crate) fn shown(value: Option<&[u8]>) -> String {
    const READ: usize = 48;
    let Some(bytes) = value else { return "nothing".into() };
    if let Ok(number) = <[u8; 8]>::try_from(bytes)
        && !bytes.iter().all(u8::is_ascii_graphic)
    {
        return format!("the number {}", u64::from_le_bytes(number));
    }
    match bytes.get(READ..) {
        None => format!("\"{}\"", bytes.escape_ascii()),
        Some(_) => format!("\"{}...\" of {} bytes", bytes[..READ].escape_ascii(), bytes.len()),
    }
}
